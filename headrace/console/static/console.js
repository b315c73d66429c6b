// Updates the page every two seconds without reloading it, and switches between light and dark. The pages work without it.
"use strict";
(() => {
  const EVERY = 2000;
  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const pause = document.getElementById("pause");
  let heard = document.getElementById("updated").textContent;

  const alike = (old, fresh) =>
    old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");

  // Remove what is ahead of the next child that is like a fresh one, and return that; where there is none, or what has an id and
  // may be wanted further on is between, remove nothing.
  function skipTo(at, fresh) {
    let found = at;
    while (found && !found.id && !alike(found, fresh)) found = found.nextSibling;
    if (!found || !alike(found, fresh)) return at;
    for (let next; at !== found; at = next) {
      next = at.nextSibling;
      at.remove();
    }
    return found;
  }

  // Make one element like another, child by child, so that focus, selection and scrolling stay.
  function update(old, fresh) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const known = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const same = next.id && known.get(next.id);
      if (same && same !== at) {
        old.insertBefore(same, at);
        at = same;
      }
      if (at) at = skipTo(at, next);
      if (at && alike(at, next)) {
        if (at.nodeType === Node.TEXT_NODE) {
          if (at.data !== next.data) at.data = next.data;
        } else if (at.nodeType === Node.ELEMENT_NODE && !("keep" in at.dataset) && !at.isEqualNode(next)) update(at, next);
        at = at.nextSibling;
      } else old.insertBefore(next, at);
    }
    while (at) {
      const after = at.nextSibling;
      at.remove();
      at = after;
    }
  }

  async function refresh() {
    try {
      const answer = await fetch(location.href, { headers: { "X-Fragment": "1" }, signal: AbortSignal.timeout(8000) });
      if (answer.status === 401) return location.reload();
      if (!answer.ok && answer.status !== 404) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (live.dataset.summary !== fresh.dataset.summary) {
        document.getElementById("announcer").textContent = fresh.dataset.summary;
      }
      heard = fresh.dataset.now;
      const focused = document.activeElement;
      update(live, fresh);
      // A row that moved to another place has lost it.
      if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
      document.getElementById("updated").textContent = heard;
      lost.hidden = true;
    } catch {
      document.getElementById("lost-since").textContent = heard;
      lost.hidden = false;
    }
  }

  async function turn() {
    if (pause.getAttribute("aria-pressed") === "false" && !document.hidden) await refresh();
    setTimeout(turn, EVERY);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") === "false";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
  });

  const theme = document.getElementById("theme");
  const root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
    name();
  });
  name();
  setTimeout(turn, EVERY);
})();
