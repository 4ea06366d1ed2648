// Makes nodes that are on the page equal to new ones, and touches only what differs: what a reader has selected, focused or
// scrolled sideways stays so, and a text that has grown is not laid out anew.

import { sourceOf } from "./math.js";

// A formula of the same source, typeset or not, and a button, which may be answering a click, are left as they are.
const kept = (now, wanted) => wanted.localName === "button" || sourceOf(now) === wanted.textContent;

function alike(now, wanted) {
  if (now.nodeName !== wanted.nodeName) return false;
  if (now.nodeType !== Node.ELEMENT_NODE) return true;
  if (!wanted.classList.contains("math") && sourceOf(now) === undefined) return true;
  return sourceOf(now) === undefined ? now.className === wanted.className : kept(now, wanted);
}

function patchText(now, data) {
  if (now.data === data) return;
  const most = Math.min(now.data.length, data.length);
  let same = data.startsWith(now.data) ? most : 0;
  if (!same) while (same < most && now.data[same] === data[same]) same += 1;
  if (same < now.data.length) now.deleteData(same, now.data.length - same);
  if (same < data.length) now.appendData(data.slice(same));
}

function patchAttributes(now, wanted) {
  for (const { name } of [...now.attributes]) if (!wanted.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
}

function patch(now, wanted) {
  if (now.nodeType === Node.TEXT_NODE) return patchText(now, wanted.data);
  if (now.isEqualNode(wanted) || kept(now, wanted)) return; // the first is quick: nearly all of a long list
  patchAttributes(now, wanted);
  morph(now, 0, [...wanted.childNodes]);
}

// The children of `parent` from the one at `first` on become like `wanted`.
export function morph(parent, first, wanted) {
  let now = parent.childNodes[first] ?? null;
  for (const node of wanted) {
    if (now && alike(now, node)) patch(now, node);
    else if (now) {
      now.replaceWith(node);
      now = node;
    } else parent.append(node);
    now = now?.nextSibling ?? null;
  }
  while (now) {
    const next = now.nextSibling;
    now.remove();
    now = next;
  }
}
