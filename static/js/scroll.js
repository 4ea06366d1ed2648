// The view follows the reply only while the reader is at the bottom; otherwise a button leads there. Earlier turns are
// loaded ahead of the reader who goes up, and nothing that is on the screen moves.

import { say } from "./notice.js";

const NEAR = 48; // px
const AHEAD = "800px"; // how far above the screen earlier turns are loaded
const LONG = 100; // turns; of more, those off the screen are not laid out
const REPLACED_MS = 1_000; // a thread that is shown anew may come in several parts
const LOAD_MS = 5_000; // for one more page of earlier turns
const MAX_LOADS = 8; // of them, to find what was being read
let pinned = true;
let seen = { scrollTop: 0, scrollHeight: 0 }; // when it was scrolled last
let watched = null;

const box = () => document.getElementById("scroll");
const toLatest = () => document.getElementById("to-latest");
const earlier = () => document.querySelector("#earlier button");

function atBottom() {
  const { scrollHeight, scrollTop, clientHeight } = box();
  return scrollHeight - scrollTop - clientHeight < NEAR;
}

function follow() {
  if (pinned) box().scrollTop = box().scrollHeight;
  toLatest().hidden = pinned || atBottom();
}

// Only who goes up leaves the end. A reply that has grown since, or text above that has become shorter, is no reader's doing.
function scrolled() {
  const { scrollTop, scrollHeight } = box();
  if (atBottom()) pinned = true;
  else if (scrollTop < seen.scrollTop && scrollHeight >= seen.scrollHeight) pinned = false;
  seen = { scrollTop, scrollHeight };
  toLatest().hidden = pinned;
}

function pin() {
  pinned = true;
  follow();
}

const sizes = new ResizeObserver(follow);

// Earlier turns

let near = null;
let observed = null; // the button, which a swap of the whole thread replaces

function load(entries) {
  if (!reading && entries.some(({ isIntersecting }) => isIntersecting)) earlier()?.click();
}

function watchEarlier() {
  const button = earlier();
  if (button === observed) return;
  near?.disconnect();
  observed = button;
  if (!button) return;
  near = new IntersectionObserver(load, { root: box(), rootMargin: `${AHEAD} 0px 0px` });
  near.observe(button);
}

let below = null; // px between the top of the screen and the end, while earlier turns are put in
let reading = null; // { id, top, timer }: the turn at the top of the screen, while the whole thread is shown anew

document.addEventListener("htmx:before:swap", ({ detail }) => {
  for (const { target, swapSpec } of detail.tasks ?? []) {
    if (target?.id === "earlier") below = box().scrollHeight - box().scrollTop;
    if (target?.id === "thread" && swapSpec?.style === "innerHTML") remember();
  }
});

document.addEventListener("htmx:after:swap", () => {
  const paged = below !== null;
  if (paged) {
    box().scrollTop = box().scrollHeight - below;
    requestAnimationFrame(() => requestAnimationFrame(setAside)); // with the size that they have then
  }
  below = null;
  watchEarlier();
  if (reading) goBack(paged);
});

function remember() {
  if (pinned) return;
  const edge = box().getBoundingClientRect().top;
  const first = [...watched.children].find((turn) => turn.getBoundingClientRect().bottom > edge);
  if (!first) return;
  clearTimeout(reading?.timer);
  reading = { id: first.id, top: first.getBoundingClientRect().top, loads: 0, timer: setTimeout(seek, REPLACED_MS) };
}

function goBack(paged) {
  const turn = document.getElementById(reading.id);
  if (!turn) {
    if (paged) seek();
    return; // it may come with the next part
  }
  box().scrollTop += turn.getBoundingClientRect().top - reading.top;
  clearTimeout(reading.timer);
  reading = null;
}

// What was being read is further up, or not there any more.
function seek() {
  clearTimeout(reading.timer);
  const button = earlier();
  if (button && reading.loads < MAX_LOADS) {
    reading.loads += 1;
    reading.timer = setTimeout(giveUp, LOAD_MS);
    button.click();
  } else giveUp();
}

function giveUp() {
  clearTimeout(reading?.timer);
  reading = null;
  pin();
  say("Much has come meanwhile. What you were reading is further up.", "calm");
}

function setAside() {
  if (watched.childElementCount <= LONG) return;
  for (const turn of watched.querySelectorAll(":scope > .turn:not(.far, :last-child)")) turn.classList.add("far");
}

function watch() {
  const thread = document.getElementById("thread");
  if (!thread || thread === watched) return;
  watched = thread;
  pinned = true;
  sizes.disconnect();
  sizes.observe(thread.parentElement);
  sizes.observe(box());
  box().addEventListener("scroll", scrolled, { passive: true });
  toLatest().addEventListener("click", pin);
  follow();
  watchEarlier();
}

watch();
new MutationObserver(watch).observe(document.querySelector(".frame"), { childList: true, subtree: true });
document.addEventListener("chat:sent", pin);
