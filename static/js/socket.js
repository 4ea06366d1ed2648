// The page's one WebSocket is held by htmx's `ws` extension (`hx-ws:connect` on #chat). Added here: what the page tells the
// server when it connects (what it shows, and how far), acknowledgements, a watch on silence, and what the close codes mean.

const ACK_MS = 250;
const SILENT_MS = 32_000; // the server sends a ping every 15 s
const CONNECT_MS = 10_000; // after that a connection that has not come is tried anew
const SIGNED_OUT = 4401, GONE = 4404, TOO_MANY = 4429, TOO_BIG = 1009;

let connection = null;
let handled = 0; // frames of this connection
let acknowledged = 0;
let heardAt = 0;
let triedAt = Date.now();
let over = false; // closed for good
let again = false;

const holder = () => document.querySelector("#chat[hx-ws\\:connect]");
const open = () => connection?.socket?.readyState === WebSocket.OPEN;
const emit = (name, detail) => document.dispatchEvent(new CustomEvent(`chat:${name}`, { detail }));

export const connected = () => open() && Boolean(holder()?.hasAttribute("data-connected"));

// Whether it went out. Frames are not queued: who sends decides what becomes of them when the connection is away.
export function transmit(frame) {
  if (!connected()) return false;
  connection.socket.send(JSON.stringify(frame));
  return true;
}

function say(text) {
  const bar = document.getElementById("connection");
  if (!bar || bar.textContent === text) return;
  bar.textContent = text;
  bar.hidden = !text;
}

// What the page shows last. Deltas that the renderer has not taken yet carry a cursor of their own.
function place() {
  const last = document.getElementById("thread")?.lastElementChild; // by its place: a long thread is searched slowly
  const deltas = last?.querySelectorAll(".source > [data-cursor]");
  return {
    message: last?.id ?? null,
    request: last?.dataset.request ?? null,
    cursor: (deltas?.length ? deltas[deltas.length - 1] : last)?.dataset.cursor ?? null,
  };
}

const TOLD = 50; // turns: as many as the server compares

// What stands below the last turns, which other pages may have changed: [id, version, versions, feedback]
function around() {
  const found = [];
  let turn = document.getElementById("thread")?.lastElementChild;
  for (; turn?.matches(".turn") && found.length < TOLD; turn = turn.previousElementSibling) {
    const foot = turn.querySelector(":scope > .foot");
    if (turn.hasAttribute("aria-busy") || !foot) continue;
    const [version, versions] = (foot.querySelector(".versions > span")?.textContent ?? "1/1").split("/").map(Number);
    const pressed = foot.querySelector('.feedback [aria-pressed="true"]');
    found.push([turn.id, version, versions, pressed ? (pressed.id.startsWith("good-") ? 1 : -1) : 0]);
  }
  return found;
}

document.addEventListener("htmx:ws:before:connection", () => {
  triedAt = Date.now();
  over = false;
});

document.addEventListener("htmx:ws:after:connection", (event) => {
  connection = event.detail.connection;
  handled = acknowledged = 0;
  heardAt = Date.now();
  const model = document.getElementById("model-list")?.dataset.told ?? null;
  connection.socket.send(JSON.stringify({ type: "hello", again, model, around: around(), ...place() }));
  again = true;
  holder().setAttribute("data-connected", "");
  emit("connected");
});

document.addEventListener("htmx:ws:before:message:incoming", (event) => {
  heardAt = Date.now();
  say(""); // open is not enough: a proxy opens it, whoever is behind it
  const { data } = event.detail.message;
  if (!data.startsWith("{")) return;
  const { type, ...detail } = JSON.parse(data);
  emit(type, detail); // accepted, refused, model_changed, ping
});

document.addEventListener("htmx:ws:after:message:incoming", () => {
  handled += 1;
});

setInterval(() => {
  if (!open() || handled === acknowledged) return;
  acknowledged = handled;
  connection.socket.send(JSON.stringify({ type: "ack", frames: handled }));
}, ACK_MS);

const running = () => Boolean(document.getElementById("thread")?.lastElementChild?.hasAttribute("aria-busy"));

function lost() {
  const goesOn = running();
  if (!navigator.onLine) {
    return goesOn
      ? "You are offline. The reply goes on; it will be here when you are back."
      : "You are offline. What you write is kept.";
  }
  return goesOn ? "Connection lost. The reply goes on; reconnecting…" : "Connection lost; reconnecting…";
}

document.addEventListener("htmx:ws:close", (event) => {
  const { code, reason } = event.detail;
  holder()?.removeAttribute("data-connected");
  if (reason === "removed") return; // this page went to another conversation, or connects anew
  over = [SIGNED_OUT, GONE, TOO_MANY].includes(code);
  emit("closed", { code });
  if (code === SIGNED_OUT) location.reload(); // the server sends it to the sign-in page
  else if (code === GONE) say("This conversation was deleted.");
  else if (code === TOO_MANY) say("Too many messages at once. Reload the page to go on.");
  else if (code === TOO_BIG) say("That message was too large to send.");
  else say(lost());
});

// A connection that died silently (a proxy, a machine that slept) is replaced; the cursor carries the text across.
function watch() {
  const element = holder();
  if (!element || over || document.hidden || !navigator.onLine) return;
  if (Date.now() - (open() ? heardAt : triedAt) <= (open() ? SILENT_MS : CONNECT_MS)) return;
  say(lost());
  emit("closed", { code: null });
  htmx.process(element, true);
}

setInterval(watch, 5_000);
document.addEventListener("visibilitychange", watch);
window.addEventListener("online", watch);
window.addEventListener("offline", () => say(lost()));
window.addEventListener("online", () => connected() && say(""));
