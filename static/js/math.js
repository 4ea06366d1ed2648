// Typesets formulas. KaTeX, its style sheet and its fonts are loaded when the first formula is seen, and not before.

const KATEX = "../vendor/katex/dist/";
let library = null;

function load() {
  library ??= (async () => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL(`${KATEX}katex.min.css`, import.meta.url).href;
    document.head.append(sheet);
    return (await import(`${KATEX}katex.mjs`)).default;
  })();
  return library;
}

// The policy of the page forbids style attributes in HTML; the same set through the style object are allowed.
function put(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html.replaceAll(' style="', ' data-style="');
  element.replaceChildren(document.importNode(template.content, true));
  for (const part of element.querySelectorAll("[data-style]")) {
    part.style.cssText = part.dataset.style;
    delete part.dataset.style;
  }
}

async function set(element) {
  const source = element.textContent;
  const displayMode = element.localName === "div" || element.classList.contains("display");
  try {
    const katex = await load();
    const html = katex.renderToString(source, { displayMode, trust: false, maxExpand: 1_000, maxSize: 50 });
    put(element, html);
  } catch (error) {
    element.classList.add("unset"); // the source is what is shown
    element.title = error.message;
  }
}

export function typeset(root) {
  for (const element of root.querySelectorAll(".math:not([data-set])")) {
    element.dataset.set = "";
    set(element);
  }
}

typeset(document);
new MutationObserver((records) => {
  for (const { addedNodes } of records) {
    for (const node of addedNodes) {
      if (node.nodeType === Node.ELEMENT_NODE && node.querySelector(".math:not([data-set])")) typeset(node);
    }
  }
}).observe(document.body, { childList: true, subtree: true });
