// The account page works without this; it only saves one the selecting of a new key.

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
