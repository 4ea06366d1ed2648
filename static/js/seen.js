// Tells the server that the end of the last reply was on the screen, so that no tab calls the conversation unread.

import { connected, transmit } from "./socket.js";

let told = null;

function tell() {
  const last = document.getElementById("thread")?.lastElementChild;
  const request = last?.dataset.request;
  if (!request || request === told || last.hasAttribute("aria-busy") || document.hidden || !connected()) return;
  if (transmit({ type: "seen", request })) told = request;
}

document.addEventListener("chat:connected", tell);
document.addEventListener("visibilitychange", tell);
document.addEventListener("htmx:ws:after:message:incoming", tell);
