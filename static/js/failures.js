// An answer that is an error takes no one's place, unless the element that asked says where it goes (`hx-status`). What was
// there stays, and can be asked for again.

import { say, unsay } from "./notice.js";

const RETRY_MS = 5_000;
const WORDS = "That part of the conversation could not be loaded. Try again.";

const places = (element) => element.hasAttribute("hx-status:4xx") || element.hasAttribute("hx-status:5xx");

function failed({ sourceElement, sourceEvent }) {
  if (sourceElement.matches(".more")) setTimeout(() => htmx.trigger(sourceElement, "retry"), RETRY_MS);
  else if (sourceElement.matches(".fetch, #earlier-button") && sourceEvent?.isTrusted) say(WORDS, "missing");
}

document.addEventListener("htmx:response:error", ({ detail: { ctx } }) => {
  if (places(ctx.sourceElement)) return;
  ctx.swap = "none";
  failed(ctx);
});

document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx && !ctx.response && !places(ctx.sourceElement)) failed(ctx); // the site was not reached
});

document.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  if (ctx.response.status < 400 && ctx.sourceElement.matches(".fetch, #earlier-button")) unsay("missing");
});
