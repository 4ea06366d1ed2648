// A block of code: copied, and shown whole where it was folded.

import { copy } from "./clipboard.js";

function unfold(button) {
  const block = button.closest(".code");
  const folded = block.classList.toggle("folded");
  button.setAttribute("aria-expanded", String(!folded));
  button.dataset.more ??= button.textContent;
  button.textContent = folded ? button.dataset.more : "Show less";
  if (folded) block.scrollIntoView({ block: "nearest" });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy], [data-unfold]");
  if (!button) return;
  if ("copy" in button.dataset) copy(button, button.closest(".code").querySelector("code").textContent);
  else unfold(button);
});
