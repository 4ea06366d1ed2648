// The view follows the reply only while the reader is at the bottom; otherwise a button leads there.

const NEAR = 48; // px
let pinned = true;
let watched = null;

const box = () => document.getElementById("scroll");
const toLatest = () => document.getElementById("to-latest");

function atBottom() {
  const { scrollHeight, scrollTop, clientHeight } = box();
  return scrollHeight - scrollTop - clientHeight < NEAR;
}

function follow() {
  if (pinned) box().scrollTop = box().scrollHeight;
  toLatest().hidden = pinned || atBottom();
}

const sizes = new ResizeObserver(follow);

function watch() {
  const thread = document.getElementById("thread");
  if (!thread || thread === watched) return;
  watched = thread;
  pinned = true;
  sizes.disconnect();
  sizes.observe(thread);
  sizes.observe(box());
  box().addEventListener(
    "scroll",
    () => {
      pinned = atBottom();
      toLatest().hidden = pinned;
    },
    { passive: true },
  );
  toLatest().addEventListener("click", () => {
    pinned = true;
    follow();
  });
  follow();
}

watch();
new MutationObserver(watch).observe(document.querySelector(".frame"), { childList: true, subtree: true });
document.addEventListener("chat:accepted", () => {
  pinned = true;
  follow();
});
