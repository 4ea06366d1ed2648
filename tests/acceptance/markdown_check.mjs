// Runs in the page: writes each text in parts through the page's renderer, and tells what differs from the server's HTML, and what was
// shown and then taken back.
async (cases) => {
  const { MarkdownStream } = await import("/static/js/markdown_stream.js");

  // The same sequence each time.
  function sequence(seed) {
    let state = seed;
    return (most) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return 1 + Math.floor((state / 2 ** 32) * most);
    };
  }

  // Tags, sorted attributes and text. Code without its colours, and unfolded: a streamed one has neither.
  function shape(root) {
    root.querySelectorAll("code").forEach((code) => (code.textContent = code.textContent));
    root.querySelectorAll(".folded").forEach((block) => block.classList.remove("folded"));
    root.querySelectorAll("[data-unfold]").forEach((button) => button.remove());
    root.normalize();
    const parts = [];
    const walk = (node) => {
      if (node.nodeType === Node.TEXT_NODE) return parts.push(node.data);
      const attributes = [...node.attributes].map(({ name, value }) => ` ${name}=${JSON.stringify(value)}`).sort();
      parts.push(`<${node.localName}${attributes.join("")}>`);
      node.childNodes.forEach(walk);
      return parts.push(`</${node.localName}>`);
    };
    root.childNodes.forEach(walk);
    return parts.join("");
  }

  // Letters and digits, which are never marks. The head of a code block is none of its text.
  function letters(root) {
    const copy = root.cloneNode(true);
    copy.querySelectorAll(".code-head").forEach((head) => head.remove());
    return copy.textContent.replace(/[^\p{L}\p{N}]/gu, "");
  }

  const faults = [];
  for (const { name, text, html } of cases) {
    for (const most of [1, 3, 9, 40]) {
      const next = sequence(most);
      const root = document.createElement("div");
      const stream = new MarkdownStream(root);
      let before = "";
      for (let at = 0; at < text.length; ) {
        const part = text.slice(at, at + next(most));
        at += part.length;
        stream.push(part);
        stream.paint();
        const now = letters(root);
        if (!now.startsWith(before)) faults.push({ name, what: "taken back", most, text: text.slice(0, at), before, now });
        before = now;
      }
      stream.end();
      const wanted = document.createElement("div");
      wanted.innerHTML = html;
      const [page, server] = [shape(root), shape(wanted)];
      if (page !== server) faults.push({ name, what: "differs", most, page, server });
    }
  }
  return faults;
}
