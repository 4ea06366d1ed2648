// The message box: Enter sends, what was written stays until the server has accepted it, and nothing is sent twice.

const text = () => document.getElementById("composer-text");
const form = () => document.getElementById("composer");
const live = () => form().hasAttribute("hx-ws:send");
let sending = null; // what was sent and is neither accepted nor refused yet

function obstacle() {
  const replying = document.getElementById("composer-action")?.type === "button"; // it says Stop
  if (sending !== null || replying || !text().value.trim()) return "";
  if (live() && !document.getElementById("chat").hasAttribute("data-connected")) {
    return "Not connected. Your message stays here; send it when the connection is back.";
  }
  return null;
}

document.addEventListener("keydown", (event) => {
  if (event.target !== text() || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (matchMedia("(pointer: coarse)").matches) return; // a phone's Enter breaks the line
  event.preventDefault();
  form().requestSubmit();
});

// Ahead of htmx, which listens on the form itself.
document.addEventListener(
  "submit",
  (event) => {
    if (event.target !== form()) return;
    const why = obstacle();
    if (why !== null) {
      event.preventDefault();
      event.stopImmediatePropagation();
      if (why) document.getElementById("notice").textContent = why;
      return;
    }
    sending = text().value;
    form().setAttribute("aria-busy", "true");
  },
  true,
);

function settle(accepted) {
  if (sending === null) return;
  if (accepted && text().value === sending) {
    text().value = "";
    grow();
  }
  sending = null;
  form().removeAttribute("aria-busy");
}

document.addEventListener("chat:accepted", () => settle(true));
document.addEventListener("chat:refused", () => settle(false));
document.addEventListener("chat:closed", () => settle(false));
document.addEventListener("htmx:finally:request", () => settle(false)); // a new chat: the page has a new box, or the reason

function grow() {
  if (CSS.supports("field-sizing", "content") || !text()) return;
  text().style.height = "auto";
  text().style.height = `${text().scrollHeight}px`;
}
document.addEventListener("input", (event) => event.target === text() && grow());

document.addEventListener("click", (event) => {
  const starter = event.target.closest?.("[data-starter]");
  if (!starter) return;
  text().value = starter.textContent;
  text().focus();
  grow();
});

// A finished reply was read out; it must not be found twice in the page.
const announcer = document.getElementById("announcer");
new MutationObserver(() => {
  if (announcer.textContent) setTimeout(() => announcer.replaceChildren(), 10_000);
}).observe(announcer, { childList: true });
