// Elements, numbers and times for people. Text is always set as text, never as markup.
import { locale, t } from "./words.js";

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const number = (n) => (n ?? 0).toLocaleString(locale());

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.round(seconds);
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const time = (text) => (text ? new Date(text).toLocaleString(locale()) : "–");

export function bar(done, total, label) {
  const share = total ? Math.min(1, done / total) : 0;
  return h("div", { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": done,
    "aria-label": label }, h("div", { class: "fill", "data-share": Math.round(share * 100) }));
}

// Widths are set through the style object: the page's policy allows no inline styles.
// What is drawn anew keeps the focus, and is not drawn under a finger: the next news draws it.
export function show(parent, ...children) {
  if (parent.querySelector(":active") && parent.childElementCount > 1) return;
  const focused = parent.contains(document.activeElement) && document.activeElement !== parent ? document.activeElement : null;
  const same = (element) => element.tagName === focused.tagName && element.textContent === focused.textContent;
  parent.replaceChildren(...children.flat().filter(Boolean));
  if (focused && !parent.contains(focused)) [...parent.querySelectorAll(focused.tagName)].find(same)?.focus({ preventScroll: true });
  for (const fill of parent.querySelectorAll("[data-share]")) fill.style.inlineSize = `${fill.dataset.share}%`;
  for (const column of parent.querySelectorAll("[data-height]")) column.style.blockSize = `${column.dataset.height}%`;
}

export function table(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty ?? t("nothing"));
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell ?? "–")))))));
}

export const badge = (status) => h("span", { class: `badge ${status}` }, t(status));

export function ask(title, body, action, danger = false) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const close = (value) => { dialog.close(); resolve(value); };
    show(dialog, h("form", { onsubmit: (event) => { event.preventDefault(); close(new FormData(event.target)); } },
      h("h2", { id: "dialog-title" }, title), body,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => close(null) }, t("back")),
        h("button", { class: danger ? "danger" : "primary" }, action))));
    dialog.setAttribute("aria-labelledby", "dialog-title");
    dialog.oncancel = () => resolve(null);
    dialog.showModal();
  });
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" }, h("strong", {}, t("failed")), " ", error.message);
}
