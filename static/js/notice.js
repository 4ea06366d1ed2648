// The line above the message box that says what stands in the way. The server writes there too.

const notice = () => document.getElementById("notice");
let said = ""; // the kind of what a script has said last

// Kinds: `calm` (wait), `size` (too much), `missing` (not loaded), `warning`.
export function say(words, kind) {
  said = words ? kind : "";
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = words;
  notice().replaceChildren(...(words ? [line] : []));
}

export const unsay = (...kinds) => kinds.includes(said) && say("");

document.addEventListener("chat:countdown", (event) => event.target.closest("#notice")?.replaceChildren());
