"use strict";
// Follows the console: when it has a newer picture, the present page is fetched again and its content replaced. Everything
// works without this script, by reloading.
(() => {
  const $ = (id) => document.getElementById(id);
  const main = () => $("main");
  let shown = main().dataset.number;
  let offset = Number(main().dataset.now) - Date.now();
  let spoken = main().dataset.summary;
  let stream = null, wanted = null, isBusy = false, isPressed = false, lostSince = null;
  document.documentElement.classList.add("scripted");

  // The same words as in the pages: at most two units.
  function duration(ms) {
    const s = Math.max(0, Math.floor(ms / 1000));
    const two = (a, x, b, y) => (b ? `${a}${x} ${b}${y}` : `${a}${x}`);
    if (s < 60) return `${s}s`;
    if (s < 3600) return two(Math.floor(s / 60), "m", s % 60, "s");
    if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor(s / 60) % 60, "m");
    return two(Math.floor(s / 86400), "d", Math.floor(s / 3600) % 24, "h");
  }
  function tick() {
    const now = Date.now() + offset;
    for (const time of document.querySelectorAll("time[data-since]")) {
      const text = duration(now - Number(time.dataset.since));
      if (time.textContent !== text) time.textContent = text;
    }
  }
  function notice(text) {
    const box = $("notice");
    if (box.textContent !== text) box.textContent = text;
    box.hidden = !text;
  }
  function lost() {
    lostSince ??= new Date();
    notice(`The console has not answered since ${lostSince.toLocaleTimeString()}. The page shows what was seen then.`);
  }
  const isSelecting = () => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && main().contains(selection.anchorNode);
  };

  function replace(page) {
    const old = main(), next = page.getElementById("main");
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const id = focused && focused.id, link = focused && focused.getAttribute("href");
    const open = [...old.querySelectorAll("details[open]")].map((it) => it.id);
    const scrolled = [...old.querySelectorAll(".scroll[id]")].map((it) => [it.id, it.scrollLeft, it.scrollTop]);
    // What is being typed is kept with its cursor: the very element goes on living.
    const typed = [...old.querySelectorAll("input[id], select[id]")];
    const cursor = focused && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null;

    for (const input of typed) next.querySelector(`[id="${input.id}"]`)?.replaceWith(input);
    old.replaceChildren(...next.childNodes);
    Object.assign(old.dataset, next.dataset);
    document.title = page.title;
    $("state").replaceChildren(...page.getElementById("state").childNodes);

    for (const it of open) $(it)?.setAttribute("open", "");
    for (const [it, x, y] of scrolled) $(it)?.scrollTo(x, y);
    const again = id ? $(id) : link ? old.querySelector(`a[href="${CSS.escape(link)}"]`) : null;
    if (again && again !== document.activeElement) {
      again.focus({ preventScroll: true });
      if (cursor && again.setSelectionRange) again.setSelectionRange(...cursor);
    }
    shown = old.dataset.number;
    offset = Number(old.dataset.now) - Date.now();
    if (spoken !== old.dataset.summary) $("spoken").textContent = spoken = old.dataset.summary;
    tick();
  }

  async function refresh() {
    if (isBusy || isPressed || document.hidden || isSelecting()) return;
    isBusy = true;
    const address = location.href;
    const before = wanted;
    try {
      const answer = await fetch(address, { credentials: "same-origin", redirect: "error" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 401) return notice("This browser is not known any more: the console was started again. Open its new address.");
      if (address !== location.href || !page.getElementById("state")) return;
      if (wanted === before) wanted = null;
      lostSince = null;
      notice("");
      if (!isPressed && !isSelecting()) replace(page);
    } catch {
      lost();
    } finally {
      isBusy = false;
      if (address !== location.href) refresh();
    }
  }
  function connect() {
    if (stream || document.hidden || !("live" in main().dataset)) return;
    stream = new EventSource("/events");
    stream.onmessage = (event) => { if (event.data !== shown) wanted = event.data; else if (lostSince) wanted = "again"; };
    stream.onerror = () => {
      lost();
      // A refusal ends a stream for good.
      if (stream && stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(connect, 3000); }
    };
  }
  function disconnect() { stream?.close(); stream = null; }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(); else { wanted = "again"; connect(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  addEventListener("pointerdown", () => { isPressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { isPressed = false; }, 150));
  // A newer picture is fetched at most five times a second, and when nothing is pressed or selected.
  setInterval(() => { if (wanted && "live" in main().dataset) refresh(); }, 200);
  setInterval(tick, 1000);

  let typing = 0;
  addEventListener("input", (event) => {
    const find = () => document.querySelector("form.filter[role=search]");
    if (!find()?.contains(event.target)) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      // The form itself may be another one by now.
      const form = find();
      const query = new URLSearchParams(new FormData(form));
      history.replaceState(null, "", `${form.getAttribute("action")}?${query}`);
      wanted = "filter";
      refresh();
    }, 150);
  });
  addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape" && isTyping) event.target.blur();
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const field = document.querySelector("form[role=search] input[type=search]");
    if (field) { field.focus(); field.select(); } else location.href = "/locks";
  });
  connect();
})();
