// The message box: Enter sends, the text stays until the server has accepted it, and it grows where CSS cannot do that.

const text = () => document.getElementById("composer-text");
const form = () => document.getElementById("composer");
let sending = null; // what was sent and is not accepted yet

const action = () => document.getElementById("composer-action");
const replying = () => action()?.type === "button"; // it says Stop

document.addEventListener("keydown", (event) => {
  if (event.target !== text() || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (matchMedia("(pointer: coarse)").matches) return; // a phone's Enter breaks the line
  event.preventDefault();
  if (!replying() && sending === null && text().value.trim()) form().requestSubmit();
});

document.addEventListener(
  "submit",
  (event) => {
    if (event.target === form() && (sending !== null || replying() || !text().value.trim())) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
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

document.addEventListener("htmx:ws:after:message:outgoing", (event) => {
  if (event.detail.message.values.type !== "send") return;
  sending = event.detail.message.values.content;
  form().setAttribute("aria-busy", "true");
});
document.addEventListener("chat:accepted", () => settle(true));
document.addEventListener("chat:refused", () => settle(false));
document.addEventListener("chat:closed", () => settle(false));

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
