// The header: the title, edited in place; the model that the next message goes to; the links that share.

import { copy } from "./clipboard.js";

const element = (id) => document.getElementById(id);
const YEAR = 365 * 24 * 3600; // seconds

// The title. A live title arrives in #title, which an edit leaves alone.

// The page's heading stays one for those who hear it.
function showTitle(shown) {
  element("title").closest("h1").classList.toggle("visually-hidden", !shown);
  element("title").tabIndex = shown ? 0 : -1;
}

function edit() {
  const form = element("title-form");
  element("title-problem").replaceChildren();
  form.hidden = false;
  showTitle(false);
  element("title-input").value = element("title").textContent;
  element("title-input").focus();
  element("title-input").select();
  element("title-input").scrollLeft = 0; // its beginning shows
}

function endEdit({ focus }) {
  if (element("title-form").hidden) return;
  showTitle(true);
  if (focus) element("title").focus();
  element("title-form").hidden = true; // after the focus has moved: hiding blurs
}

const changed = () => {
  const title = element("title-input").value.trim();
  return title !== "" && title !== element("title").textContent;
};

document.addEventListener("click", (event) => {
  if (event.target.closest?.("button#title")) edit();
});

document.addEventListener("keydown", (event) => {
  if (event.target.id === "title-input" && event.key === "Escape") {
    event.target.value = "";
    endEdit({ focus: true });
  }
});

document.addEventListener("focusout", (event) => {
  if (event.target.id !== "title-input" || element("title-form").hidden) return;
  if (changed()) element("title-form").requestSubmit();
  else endEdit({ focus: false });
});

document.addEventListener(
  "submit",
  (event) => {
    if (event.target.id !== "title-form" || changed()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    endEdit({ focus: true });
  },
  true,
);

document.addEventListener("htmx:finally:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.sourceElement?.id !== "title-form") return;
  if (!ctx.response) element("title-problem").textContent = "The site cannot be reached. The title was not saved.";
  else if (ctx.response.status < 400) endEdit({ focus: document.activeElement === element("title-input") });
});

// The title of the window follows

const follow = new MutationObserver(() => (document.title = element("title").textContent));

function watchTitle() {
  follow.disconnect();
  if (element("title")) follow.observe(element("title"), { childList: true, characterData: true, subtree: true });
}

watchTitle();
new MutationObserver(watchTitle).observe(document.querySelector(".frame"), { childList: true });

// The model

const chosenModel = () => document.querySelector("#model-list input:checked");

function showModel(radio) {
  element("model-title").textContent = radio.dataset.title;
  htmx.ajax("GET", `/models/${encodeURIComponent(radio.value)}/state`, { target: "#model-state", swap: "outerHTML" });
  const box = element("composer-text");
  if (box) box.placeholder = `Message ${radio.dataset.title}`;
  document.dispatchEvent(new CustomEvent("chat:model", { detail: { name: radio.value, title: radio.dataset.title } }));
}

document.addEventListener("change", (event) => {
  const radio = event.target;
  if (!radio.matches?.("#model-list input")) return;
  document.cookie = `model=${encodeURIComponent(radio.value)}; path=/; max-age=${YEAR}; samesite=lax`; // what a new chat begins with
  showModel(radio);
});

// Chosen in another tab. A choice that was made here, and not used yet, stays.
document.addEventListener("chat:model_changed", ({ detail: { name } }) => {
  const { dataset } = element("model-list");
  const chosen = chosenModel();
  const radio = [...document.querySelectorAll("#model-list input:enabled")].find(({ value }) => value === name);
  const untouched = (chosen?.value ?? "") === dataset.told;
  dataset.told = name;
  if (!radio || radio === chosen || !untouched) return;
  radio.checked = true;
  showModel(radio);
});

document.addEventListener("click", (event) => {
  const radio = event.target.closest?.("#model-list input");
  if (radio && event.detail > 0) element("model-menu").hidePopover(); // by a pointer: arrows go on choosing
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches?.("#model-list input")) return;
  event.preventDefault();
  element("model-menu").hidePopover();
});

document.addEventListener(
  "toggle",
  (event) => {
    if (event.target.id !== "model-menu" || event.newState !== "open") return;
    const model = encodeURIComponent(chosenModel()?.value ?? "");
    htmx.ajax("GET", `/models?model=${model}`, { target: "#model-list", swap: "innerMorph" }); // their states, as they are now
  },
  true,
);

// Sharing

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy-link]");
  if (button) copy(button, element(button.dataset.copyLink).value);
});
