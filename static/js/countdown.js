// "Try again in 20 s", counted down where it stands. At its end `chat:countdown` is sent from the element, which then goes.

const started = new WeakSet();

function start(element) {
  if (started.has(element)) return;
  started.add(element);
  const until = Date.now() + 1000 * Number(element.dataset.seconds);
  const tick = () => {
    if (!element.isConnected) return clearInterval(timer);
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left > 0) {
      element.textContent = `Try again in ${left} s.`;
      return;
    }
    clearInterval(timer);
    element.dispatchEvent(new CustomEvent("chat:countdown", { bubbles: true }));
    element.remove();
  };
  const timer = setInterval(tick, 1000);
  tick();
}

export function countdown(seconds) {
  const element = document.createElement("span");
  element.className = "countdown";
  element.dataset.seconds = seconds;
  element.setAttribute("aria-live", "off"); // its first words are read with the reason, not each second
  return element; // started when it is put into the page
}

new MutationObserver((records) => {
  for (const { addedNodes } of records) {
    for (const node of addedNodes) {
      const found = node.matches?.(".countdown") ? node : node.querySelector?.(".countdown");
      if (found) start(found);
    }
  }
}).observe(document.querySelector(".frame"), { childList: true, subtree: true });
