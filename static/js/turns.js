// What can be done with a turn: copy it, edit one's own in place.

import { copy } from "./clipboard.js";
import { say } from "./notice.js";
import * as outgoing from "./outgoing.js";

const NOTHING = { id: null, content: "" };
const GONE_MS = 1_000; // a thread that is shown anew may come in several parts
let edited = NOTHING; // the message that is being edited, what it was and how far it is

// A page holds no second copy of each reply: its Markdown is fetched.
async function markdownOf(turn) {
  const answer = await fetch(`/v1/messages/${turn.id}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`The reply was not given: ${answer.status}`);
  return (await answer.json()).content;
}

// Editing

function editorOf(turn, content) {
  const form = document.createElement("form");
  form.className = "editor";
  form.innerHTML = `
    <textarea aria-label="Edit message" rows="1"></textarea>
    <div class="row">
      <button type="button" class="quiet" data-cancel>Cancel</button>
      <button type="submit" class="primary small">Save &amp; send</button>
    </div>`;
  const box = form.querySelector("textarea");
  box.value = content;
  const grow = () => {
    if (CSS.supports("field-sizing", "content")) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
  };
  box.addEventListener("input", () => {
    edited.content = box.value;
    grow();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close(turn);
    else if (event.target === box && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      if (matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.querySelector("[data-cancel]").addEventListener("click", () => close(turn));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!box.value.trim()) return;
    const why = outgoing.busy();
    if (why) {
      say(why, "calm");
      return;
    }
    close(turn);
    const model = new FormData(document.getElementById("composer")).get("model");
    outgoing.send({ content: box.value, model, edits: turn.id });
    document.getElementById("composer-text").focus({ preventScroll: true });
  });
  queueMicrotask(grow);
  return form;
}

function open(turn, content) {
  document.querySelectorAll(".turn.editing").forEach((other) => other !== turn && close(other));
  if (turn.classList.contains("editing")) return;
  edited = { id: turn.id, content, original: turn.querySelector(".bubble").textContent };
  turn.classList.add("editing");
  turn.append(editorOf(turn, content));
}

function close(turn) {
  edited = NOTHING;
  turn.classList.remove("editing");
  turn.querySelector(".editor")?.remove();
  turn.querySelector("[data-edit]")?.focus({ preventScroll: true });
}

function edit(turn, content) {
  const writing = turn.classList.contains("editing") && content !== edited.content ? edited.content : "";
  if (writing.trim()) content = `${content}\n\n${writing}`;
  open(turn, content);
  const box = turn.querySelector("textarea");
  box.value = content;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  box.focus();
  box.setSelectionRange(content.length, content.length);
}

document.addEventListener("chat:takeback", ({ detail: { content, edits } }) => {
  const turn = edits && document.getElementById(edits);
  if (turn) edit(turn, content);
});

// A thread that was shown anew has its editor again; where the message is not shown any more, the box takes the text.
let looking = null;

document.addEventListener("htmx:ws:after:message:incoming", () => {
  const turn = edited.id && document.getElementById(edited.id);
  if (turn && !turn.classList.contains("editing")) open(turn, edited.content);
  else if (edited.id && !turn) looking ??= setTimeout(handOver, GONE_MS);
});

function handOver() {
  looking = null;
  if (!edited.id || document.getElementById(edited.id)) return;
  const { content, original } = edited;
  edited = NOTHING;
  if (content === original || !content.trim()) return;
  document.dispatchEvent(new CustomEvent("chat:takeback", { detail: { content, edits: null } }));
  say("The message that you were editing was changed elsewhere. Your text is in the box.", "warning");
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy-turn], [data-edit]");
  if (!button) return;
  const turn = button.closest(".turn");
  const bubble = turn.querySelector(".bubble");
  if ("edit" in button.dataset) edit(turn, bubble.textContent);
  else copy(button, bubble ? bubble.textContent : markdownOf(turn));
});

// A turn that is replaced takes the focus with it: a keyboard goes on from the message box.
let focused = null;

document.addEventListener("htmx:before:swap", () => {
  const { activeElement } = document;
  focused = activeElement?.closest("#chat") && activeElement.matches(":focus-visible") ? activeElement : null;
});
document.addEventListener("htmx:after:swap", () => {
  if (!focused || focused.isConnected || document.activeElement !== document.body) return;
  document.getElementById("composer-text")?.focus({ preventScroll: true });
});
