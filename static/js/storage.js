// The browser's storage, which may be blocked, missing or full: then nothing is kept, and all else works.

function find(name) {
  try {
    return window[name] ?? null;
  } catch {
    return null; // blocked: already to look at it throws
  }
}

// `name`: localStorage or sessionStorage.
export function store(name) {
  const area = find(name);
  const attempt = (act, otherwise) => {
    try {
      return area ? act() : otherwise;
    } catch (error) {
      console.warn("Not kept", error);
      return otherwise;
    }
  };
  return {
    get: (key) => attempt(() => area.getItem(key), null),
    set: (key, value) => attempt(() => (value ? area.setItem(key, value) : area.removeItem(key))),
    clear: (prefix) =>
      attempt(() =>
        Object.keys(area)
          .filter((key) => key.startsWith(prefix))
          .forEach((key) => area.removeItem(key)),
      ),
  };
}
