// Markdown as HTML, the same as conversations/markdown.py makes of it: the server's parser is a port of this one, so both are given
// the same options, the same rules and the same shapes. What changes there changes here.

import DOMPurify from "../vendor/dompurify/dist/purify.es.mjs";
import MarkdownIt from "../vendor/markdown-it/dist/browser/markdown-it.esm.min.mjs";
import { mathPlugin } from "./markdown_math.js";
import { strip } from "./markdown_space.js";
import { tailPlugin } from "./markdown_tail.js";

// Parser

const BREAK = /<br {0,9}\/?>(?: {0,9}\n {0,99})?/iy; // and the end of a line right behind it

// The one tag that is no text: models write it to break a line, above all in the cell of a table.
function breakTag(state, silent) {
  BREAK.lastIndex = state.pos;
  const found = BREAK.exec(state.src);
  if (!found || state.pos + found[0].length > state.posMax) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found[0].length;
  return true;
}

function stripInline(state) {
  for (const token of state.tokens) if (token.type === "inline") token.content = strip(token.content);
}

// Lists and quotes begin at the side where their language does.
function setDirection(state) {
  for (const token of state.tokens) {
    if (["blockquote_open", "bullet_list_open", "ordered_list_open"].includes(token.type)) token.attrSet("dir", "auto");
  }
}

export const parser = new MarkdownIt("commonmark", { html: false, breaks: true })
  .enable(["table", "strikethrough"])
  .use(mathPlugin)
  .use(tailPlugin);
parser.inline.ruler.before("autolink", "break_tag", breakTag);
parser.core.ruler.after("block", "strip_inline", stripInline);
parser.core.ruler.push("direction", setDirection);

// Shapes

const { escapeHtml } = parser.utils;

function codeBlock(code, language) {
  const copy = '<button type="button" class="quiet" data-copy>Copy</button>';
  const head = `<div class="code-head"><span>${escapeHtml(language)}</span>${copy}</div>`;
  return `<div class="code">${head}<pre tabindex="0" role="group" aria-label="Code"><code>${escapeHtml(code)}</code></pre></div>\n`;
}

const mathClass = ({ meta }) => `math${meta.display ? " display" : ""}${meta.open ? " open" : ""}`;

Object.assign(parser.renderer.rules, {
  fence: (tokens, index) => codeBlock(tokens[index].content, strip(tokens[index].info).split(/\s+/)[0]),
  code_block: (tokens, index) => codeBlock(tokens[index].content, ""),
  // A link: a fetched image would tell its host who reads.
  image: (tokens, index, options, env, renderer) => {
    const alt = renderer.renderInlineAsText(tokens[index].children ?? [], options, env) || "Image";
    return `<a href="${escapeHtml(tokens[index].attrGet("src") ?? "")}">${escapeHtml(alt)}</a>`;
  },
  table_open: () => '<div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table dir="auto">',
  table_close: () => "</table></div>",
  th_open: () => "<th>",
  td_open: () => "<td>",
  math_inline: (tokens, index) => `<span class="${mathClass(tokens[index])}">${escapeHtml(tokens[index].content)}</span>`,
  math_block: (tokens, index) => `<div class="${mathClass(tokens[index])}">${escapeHtml(tokens[index].content)}</div>\n`,
});

// Safety: the server's allow-list. Each of its three lines of defence holds here, too.

const TAGS = (
  "a blockquote br button code del div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul"
).split(" ");
const FOCUSABLE = { tabindex: ["0"], role: ["group"] };
// tag -> attribute -> its values; null: any
const ATTRIBUTES = {
  a: { href: null, title: null },
  blockquote: { dir: ["auto"] },
  button: { "data-copy": null, type: ["button"], class: ["quiet"] },
  div: { ...FOCUSABLE, "aria-label": ["Table"], class: ["code", "code-head", "math", "scroll-x", "open"] },
  ol: { start: null, dir: ["auto"] },
  pre: { ...FOCUSABLE, "aria-label": ["Code"] },
  span: { class: ["display", "math", "open"] },
  table: { dir: ["auto"] },
  ul: { dir: ["auto"] },
};
const SCHEME = /^[\0- ]*([a-z][a-z\d+.-]*):/i;
const SCHEMES = ["http", "https", "mailto"];

function safeLink(value) {
  const scheme = SCHEME.exec(value);
  return !scheme || (SCHEMES.includes(scheme[1].toLowerCase()) && URL.canParse(value));
}

function allowed(tag, name, value) {
  const values = ATTRIBUTES[tag]?.[name];
  if (values === undefined) return false;
  if (name === "href") return safeLink(value);
  return values === null || value.split(" ").every((each) => values.includes(each));
}

const purifier = DOMPurify(window);
purifier.setConfig({
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: [...new Set(Object.values(ATTRIBUTES).flatMap(Object.keys))],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
});
purifier.addHook("uponSanitizeAttribute", (element, data) => {
  data.keepAttr = allowed(element.localName, data.attrName, data.attrValue);
  data.forceKeepAttr = data.keepAttr && data.attrName === "title"; // as it is: with the blanks at its ends
});
purifier.addHook("afterSanitizeAttributes", (element) => {
  if (element.localName !== "a") return;
  element.setAttribute("target", "_blank");
  element.setAttribute("rel", "noopener noreferrer nofollow");
});

// The nodes of what was parsed.
export function nodesOf(tokens, env) {
  return tokens.length ? [...purifier.sanitize(parser.renderer.render(tokens, parser.options, env)).childNodes] : [];
}
