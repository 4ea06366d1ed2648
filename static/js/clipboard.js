// Copying, with an answer on the button.

const DONE_MS = 2_000;

async function write(text) {
  if (window.ClipboardItem && navigator.clipboard?.write) {
    // Given as a promise: a browser forgets the click while something is fetched.
    const blob = Promise.resolve(text).then((found) => new Blob([found], { type: "text/plain" }));
    return navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  }
  if (navigator.clipboard?.writeText) return navigator.clipboard.writeText(await text);
  const box = document.createElement("textarea"); // a plain http address has no clipboard
  box.value = await text;
  box.className = "visually-hidden";
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  return box.remove();
}

function answer(button, done) {
  const icon = button.querySelector("use");
  const word = done ? "Copied" : "Not copied";
  const before = { title: button.title, text: button.textContent };
  if (icon) {
    button.title = word;
    if (done) icon.setAttribute("href", icon.getAttribute("href").replace(/#.*/, "#done"));
  } else button.textContent = word;
  setTimeout(() => {
    if (icon) {
      button.title = before.title;
      icon.setAttribute("href", icon.getAttribute("href").replace(/#.*/, "#copy"));
    } else button.textContent = before.text;
  }, DONE_MS);
}

// `text`: or a promise of it.
export async function copy(button, text) {
  if (button.dataset.copied) return;
  button.dataset.copied = "true";
  setTimeout(() => delete button.dataset.copied, DONE_MS);
  try {
    await write(text);
    answer(button, true);
  } catch (error) {
    console.warn("Nothing was copied", error);
    answer(button, false);
  }
}
