// htmx and its WebSocket extension as one module, so that nothing runs between the two: htmx looks at the page in the next
// task, and an extension that comes later would never connect it.

import "../vendor/htmx.org/dist/htmx.esm.min.js";
import "../vendor/htmx.org/dist/ext/hx-ws.min.js";
