// Runs before the first paint, so it is a small classic script: the colours and the sidebar as they were left in this browser.
// Radios with `data-theme-choice` (system, light, dark), on any page, show the choice and change it.

(() => {
  const root = document.documentElement;
  const SURFACE = { light: "#ffffff", dark: "#17191c" }; // as in tokens.css

  const read = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage is blocked: the system's colours, and nothing is remembered
    }
  };

  const choice = () => {
    const stored = read("theme");
    return stored === "light" || stored === "dark" ? stored : "system";
  };

  function colour(meta) {
    meta.dataset.own ??= meta.content;
    meta.content = SURFACE[choice()] ?? meta.dataset.own;
  }

  function show() {
    const theme = choice();
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    document.querySelectorAll('meta[name="theme-color"]').forEach(colour);
    for (const radio of document.querySelectorAll("[data-theme-choice]")) radio.checked = radio.dataset.themeChoice === theme;
  }

  function showSidebar() {
    if (read("sidebar") === "closed") root.dataset.sidebar = "closed";
    else delete root.dataset.sidebar;
  }

  // The server says Today and Yesterday by this clock.
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone ?? "");
  if (!document.cookie.includes(`timezone=${zone}`)) document.cookie = `timezone=${zone}; path=/; max-age=31536000; samesite=lax`;

  show();
  showSidebar();
  document.addEventListener("DOMContentLoaded", show);
  window.addEventListener("pageshow", (event) => event.persisted && show());
  window.addEventListener("storage", (event) => {
    if (event.key === "theme" || event.key === null) show();
  });
  document.addEventListener("change", (event) => {
    const theme = event.target.dataset?.themeChoice;
    if (!theme) return;
    try {
      if (theme === "system") localStorage.removeItem("theme");
      else localStorage.setItem("theme", theme);
    } catch {
      root.dataset.theme = theme; // for this page only
      return;
    }
    show();
  });
})();
