// The account pages work without this: it saves one the selecting of a new key, and a second click on a slow line, whose answer
// would take the place of the first, with the key in it.

const SLOW_MS = 30_000; // then it may be sent again

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copy);
    const told = document.querySelector("[data-copied]");
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      told.textContent = "Copied.";
    } catch {
      told.textContent = "Copying is not allowed here. The key is selected: copy it with the keyboard.";
    }
  });
}

for (const form of document.querySelectorAll("form[data-once]")) {
  const button = form.querySelector("[type=submit]");
  let sentAt = -Infinity;
  const release = () => {
    sentAt = -Infinity;
    button.removeAttribute("aria-disabled");
  };
  form.addEventListener("submit", (event) => {
    const now = performance.now();
    if (now - sentAt < SLOW_MS) return event.preventDefault();
    sentAt = now;
    button.setAttribute("aria-disabled", "true"); // not `disabled`, which would lose the focus
    setTimeout(release, SLOW_MS);
  });
  window.addEventListener("pageshow", ({ persisted }) => persisted && release());
}
