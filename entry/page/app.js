// The frame: who is signed in, which page, what is live. Each page is a function of what it is told; see pages.js.
import { ask, h, show } from "./dom.js";
import { jobPage } from "./job.js";
import { accounts, fleet, jobs, overview, schedules, workers } from "./pages.js";
import { follow, read, token } from "./server.js";
import { speak, spoken, t } from "./words.js";

const PAGES = { "": overview, jobs, workers, accounts, schedules, fleet };
const main = document.getElementById("main");
const live = document.getElementById("live");
const banner = document.getElementById("banner");
let leave = () => {};
let turn = 0; // which visit of a page this is: what an earlier one waited for is not drawn any more

function state(name, error) {
  live.textContent = name === "live" ? t("live") : t("lost");
  live.classList.toggle("on", name === "live");
  const trouble = error && error.status !== 0 ? error.message : "";
  banner.hidden = name === "live";
  banner.textContent = name === "live" ? "" : [t("offline"), trouble].filter(Boolean).join(" ");
  if (name === "refused" && error.status === 401) {
    token.set("");
    signIn();
  }
}

async function signIn() {
  leave();
  const note = h("p", { class: "alert", role: "alert" });
  const field = h("input", { name: "token", type: "password", autocomplete: "off", required: true, autofocus: true });
  show(main, h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    try {
      await read("/deployment");
      route();
    } catch (error) {
      token.set("");
      field.setAttribute("aria-invalid", "true");
      note.textContent = error.status === 401 ? t("refused") : error.message;
    }
  } }, h("h1", {}, t("signIn")), h("label", {}, t("token"), field), h("p", { class: "empty" }, t("tokenHint")),
  h("div", { class: "actions" }, h("button", { class: "primary" }, t("signIn")))));
  main.querySelector("form").append(note);
  field.focus();
}

function frame(page) {
  document.documentElement.lang = spoken() === "zh" ? "zh-CN" : "en";
  const links = Object.keys(PAGES).map((name) =>
    h("a", { href: `#/${name}`, "aria-current": name === page ? "page" : null }, t(name || "overview")));
  document.getElementById("nav").replaceChildren(...links);
  const out = document.getElementById("sign-out");
  out.textContent = t("signOut");
  out.hidden = !token.get();
  document.getElementById("language").value = spoken();
}

async function route() {
  leave();
  const mine = ++turn;
  const [page, uid] = location.hash.replace(/^#\/?/, "").split("/");
  frame(page);
  try {
    if (!token.get()) await read("/deployment"); // open on a box that asks for no token
  } catch (error) {
    if (error.status === 401) return mine === turn && signIn();
  }
  if (mine !== turn) return;
  const draw = page === "job" ? jobPage(uid ?? "") : Object.hasOwn(PAGES, page) ? PAGES[page]() : null;
  if (!draw) return show(main, h("h1", {}, t("notFound")));
  show(main, h("p", { class: "empty", role: "status" }, t("loading")));
  let gone = false;
  const put = (...children) => { if (!gone) show(main, ...children); };
  const stop = follow(draw.path ?? "/deployment/changes", { state: (name, error) => !gone && state(name, error), on: (event, data) => {
    if (event === "overview") {
      state("live");
      document.getElementById("name").textContent = data.name;
      document.title = `${data.name} – ${data.running_total} / ${data.waiting_total}`;
    }
    if (event === "trouble") state("lost", { message: data.cause });
    else draw.on?.(event, data, put);
  } });
  leave = () => { gone = true; stop(); draw.leave?.(); };
  draw.start?.(put);
}

document.getElementById("language").addEventListener("change", (event) => { speak(event.target.value); route(); });
document.getElementById("sign-out").addEventListener("click", async () => {
  if (await ask(t("signOut"), "", t("signOut"))) { token.set(""); route(); }
});
addEventListener("hashchange", () => { route(); main.focus(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("offline", () => state("lost"));
speak(spoken());
route();
