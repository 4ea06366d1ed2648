// The view follows the reply only while the reader is at the bottom; otherwise a button leads there. Earlier turns are
// loaded ahead of the reader who goes up, and nothing that is on the screen moves.

const NEAR = 48; // px
const AHEAD = "800px"; // how far above the screen earlier turns are loaded
let pinned = true;
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

function pin() {
  pinned = true;
  follow();
}

const sizes = new ResizeObserver(follow);

// Earlier turns

let near = null;

function load(entries) {
  if (entries.some(({ isIntersecting }) => isIntersecting)) earlier()?.click();
}

function watchEarlier() {
  near?.disconnect();
  const button = earlier();
  if (!button) return;
  near = new IntersectionObserver(load, { root: box(), rootMargin: `${AHEAD} 0px 0px` });
  near.observe(button);
}

let below = null; // px between the top of the screen and the end, while earlier turns are put in

document.addEventListener("htmx:before:swap", ({ detail }) => {
  if (detail.tasks?.some(({ target }) => target?.id === "earlier")) below = box().scrollHeight - box().scrollTop;
});

document.addEventListener("htmx:after:swap", () => {
  if (below === null) return;
  box().scrollTop = box().scrollHeight - below;
  below = null;
  watchEarlier();
});

function watch() {
  const thread = document.getElementById("thread");
  if (!thread || thread === watched) return;
  watched = thread;
  pinned = true;
  sizes.disconnect();
  sizes.observe(thread.parentElement);
  sizes.observe(box());
  box().addEventListener(
    "scroll",
    () => {
      pinned = atBottom();
      toLatest().hidden = pinned;
    },
    { passive: true },
  );
  toLatest().addEventListener("click", pin);
  follow();
  watchEarlier();
}

watch();
new MutationObserver(watch).observe(document.querySelector(".frame"), { childList: true, subtree: true });
document.addEventListener("chat:sent", pin);
