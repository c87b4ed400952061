// Every page but a job's own. A page has `start(put)`, called once, and `on(event, data, put)` for what is told live.
import { ask, badge, bar, duration, failure, h, number, table, time } from "./dom.js";
import { call, read } from "./server.js";
import { t } from "./words.js";

const link = (uid, text) => h("a", { href: `#/job/${encodeURIComponent(uid)}` }, text);
const tile = (label, value, bad = false) => h("div", { class: bad ? "tile bad" : "tile" }, h("b", {}, value), h("span", {}, label));
const card = (title, ...children) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...children);

function columns(label, values, bad) {
  const most = Math.max(1, ...values);
  return h("div", { class: "columns", role: "img", "aria-label": `${label}: ${values.at(-1)} … max ${most}` },
    values.map((value) => h("div", { class: bad ? "bad" : "", "data-height": Math.round((value / most) * 100), title: value })));
}

export function overview() {
  let history = null;
  let last = null;
  let timer = 0;
  const draw = (put) => {
    if (!last) return;
    const o = last;
    const accounts = Object.entries(o.accounts).map(([state, count]) => `${number(count)} ${state}`).join(", ");
    const failed = (history?.minutes ?? []).reduce((sum, minute) => sum + minute.failed, 0);
    put(h("div", { class: "row" }, h("h1", {}, o.name), h("button", { class: "primary", onclick: submit }, t("submitJob"))),
      Object.entries(o.parts).map(([part, cause]) => h("p", { class: "failure", role: "alert" }, `${part}: ${cause}`)),
      h("div", { class: "tiles" },
        tile(t("running"), number(o.running_total)), tile(t("waiting"), number(o.waiting_total)),
        tile(t("oldest"), o.waiting_total ? duration(o.oldest_waiting_s) : "–"),
        tile(t("throughput"), number(o.items_per_s)),
        tile(`${t("seats")} (${number(o.seats_working)} ${t("working")})`, number(o.seats), !o.workers && o.running_total + o.waiting_total > 0),
        tile(`${t("accounts")}: ${accounts || "–"}`, number(Object.values(o.accounts).reduce((a, b) => a + b, 0))),
        tile(`${t("failed2")}, 60 min`, number(failed), failed > 0)),
      card(t("running"), table(t("running"), [t("target"), t("catalogue"), t("progress"), t("items"), t("rate"), t("eta")],
        o.running.map((job) => [link(job.uid, job.target), job.catalogue, bar(job.done, job.total, job.target),
          `${number(job.done)} / ${number(job.total)}`, job.rate_per_s ?? "–", duration(job.eta_s)]), t("noRunning"))),
      card(t("waiting"), table(t("waiting"), [t("target"), t("catalogue"), t("items"), t("priority"), t("group"), t("created")],
        o.waiting.map((job) => [link(job.uid, job.target), job.catalogue, number(job.items), job.priority, job.labels.group, time(job.created_at)]))),
      history && card(t("lately"), columns(t("completed"), history.minutes.map((m) => m.completed)),
        columns(t("failed2"), history.minutes.map((m) => m.failed), true)));
  };
  const refresh = async (put) => {
    history = await read("/deployment/history").catch(() => history);
    draw(put);
  };
  return {
    start: (put) => { refresh(put); timer = setInterval(refresh, 15_000, put); },
    on: (event, data, put) => { if (event === "overview") { last = data; draw(put); } },
    leave: () => clearInterval(timer),
  };
}

export async function submit() {
  const names = (await read("/catalogues").catch(() => [])).map((one) => one.name);
  const body = h("div", {}, h("label", {}, t("target"), h("input", { name: "target", required: true, maxlength: 1024 })),
    h("label", {}, t("catalogue"), h("select", { name: "catalogue", required: true }, names.map((name) => h("option", {}, name)))),
    h("label", {}, t("priority"), h("select", { name: "priority" }, ["normal", "high", "low"].map((name) => h("option", {}, name)))));
  const form = await ask(t("submitJob"), body, t("submit"));
  if (!form) return;
  await attempt(async () => {
    const made = await call("POST", "/jobs", Object.fromEntries(form));
    location.hash = `#/job/${made.uid}`;
  });
}

export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    await ask(t("failed"), failure(error), "OK");
    return null;
  }
}

export function jobs() {
  let before = null;
  let page = null;
  const status = h("select", { "aria-label": t("status") }, h("option", { value: "" }, t("all")),
    ["queueing", "pending", "completed", "failed", "cancelled"].map((name) => h("option", { value: name }, t(name))));
  const search = h("input", { type: "search", placeholder: t("search"), "aria-label": t("search") });
  const list = h("div", { "aria-live": "polite" });
  let asked = 0;
  let drawn = 0;
  const load = async () => {
    const mine = ++asked;
    drawn = Date.now();
    const query = new URLSearchParams({ limit: "50", search: search.value });
    if (status.value) query.set("status", status.value);
    if (before) query.set("before", before);
    try {
      page = await read(`/deployment/jobs?${query}`);
    } catch (error) {
      return mine === asked && list.replaceChildren(failure(error));
    }
    if (mine !== asked) return; // a later question has been asked
    list.replaceChildren(table(t("jobs"), [t("target"), t("status"), t("items"), t("priority"), t("failures"), t("created"), t("ended")],
      page.jobs.map((job) => [link(job.uid, job.target), badge(job.status), `${number(job.done)} / ${number(job.items)}`, job.priority,
        job.failures ? number(job.failures) : "–", time(job.created_at), time(job.ended_at)])),
    page.next ? h("button", { onclick: () => { before = page.next; load(); } }, t("older")) : "");
  };
  const anew = () => { before = null; load(); };
  status.addEventListener("change", anew);
  search.addEventListener("input", () => { clearTimeout(anew.timer); anew.timer = setTimeout(anew, 250); });
  return {
    start: (put) => {
      put(h("div", { class: "row" }, h("h1", {}, t("jobs")), h("button", { class: "primary", onclick: submit }, t("submitJob"))),
        h("div", { class: "row" }, search, status), list);
      load();
    },
    on: (event) => { if (event === "overview" && !before && !document.hidden && Date.now() - drawn > 3000) load(); },
  };
}

export function workers() {
  const draw = async (put) => {
    const found = await read("/deployment/workers").catch(() => null);
    if (!found) return;
    put(h("h1", {}, t("workers")), found.length ? found.map((worker) => card(worker.worker,
      h("p", { class: "empty" }, `${t("version")} ${worker.version} · ${t("since")} ${time(worker.started_at)}`),
      table(worker.worker, [t("account"), t("rating"), t("itemTime"), t("doing")], worker.seats.map((seat) => [
        seat.account, seat.rate, seat.item_s ? `${(seat.item_s * 1000).toFixed(0)} ms` : "–",
        seat.span ? h("span", {}, link(seat.uid, seat.uid), ` ${seat.span[0]}–${seat.span[1]}`) : seat.uid ?? t("idle")]))))
      : h("p", { class: "failure" }, t("noWorkers")));
  };
  let timer = 0;
  return { start: (put) => { draw(put); timer = setInterval(draw, 2000, put); }, leave: () => clearInterval(timer) };
}

const PAGE = 100;

// What a list that comes in pages ends with: a way to its beginning, and one to what follows.
const pager = (first, next, go) => first && next === null ? "" : h("p", { class: "row" },
  first ? "" : h("button", { onclick: () => go(null) }, t("first")), next === null ? "" : h("button", { onclick: () => go(next) }, t("nextPage")));

export function accounts() {
  let after = null;
  const start = async (put) => {
    const [health, names] = await Promise.all([read("/deployment/accounts"), read(`/accounts?limit=${PAGE}&after=${after ?? 0}`).catch(() => null)]);
    const again = () => start(put).catch((error) => put(h("h1", {}, t("accounts")), failure(error)));
    const act = (title, sure, action) => async () => {
      if (await ask(title, h("p", {}, sure), title, true)) { await attempt(action); again(); }
    };
    const next = names?.length === PAGE ? names.at(-1).id : null;
    const rows = (names ?? health.troubled.map((one) => ({ ...one, id: one.account, email: null }))).map((one) => [
      one.id, one.email, one.state, one.rate, time(one.rest_until), one.last_error ?? "–",
      names && h("span", { class: "actions" },
        h("button", { onclick: act(t("release"), t("releaseSure"), () => call("POST", `/accounts/${one.id}/release`)) }, t("release")),
        h("button", { onclick: act(t("disable"), t("disableSure"), () => call("PATCH", `/accounts/${one.id}`, { disabled: true })) }, t("disable")),
        h("button", { onclick: async () => {
          const form = await ask(t("enable"), h("label", {}, t("rating"), h("input", { name: "rate", type: "number", step: "0.1", min: 0, max: 1, value: 1 })), t("enable"));
          if (form) { await attempt(() => call("PATCH", `/accounts/${one.id}`, { rate: Number(form.get("rate") || 1) })); again(); }
        } }, t("enable")))]);
    put(h("div", { class: "row" }, h("h1", {}, t("accounts")), h("button", { class: "primary", onclick: async () => {
      const form = await ask(t("importAccounts"), h("label", {}, t("importHint"), h("textarea", { name: "lines", rows: 8, required: true })), t("importAccounts"));
      if (!form) return;
      const made = await attempt(() => call("POST", "/accounts/import", form.get("lines")));
      if (made) { await ask(t("importAccounts"), h("p", {}, `${made.added} / ${made.changed} ${t("imported")}`), "OK"); again(); }
    } }, t("importAccounts"))),
    h("div", { class: "tiles" }, Object.entries(health.states).map(([state, count]) => tile(state, number(count), state === "Disabled")),
      tile(t("free"), number(health.free))),
    names ? "" : h("p", { class: "empty" }, t("notAllowed")),
    card(t("accounts"), table(t("accounts"), ["id", t("email"), t("state"), t("rating"), t("rests"), t("error"), t("actions")], rows), pager(after === null, next, (from) => { after = from; again(); })));
  };
  return { start: (put) => start(put).catch((error) => put(h("h1", {}, t("accounts")), failure(error))) };
}

export function fleet() {
  const draw = async (put) => {
    try {
      const found = await read("/fleet");
      if (!found.length) return put(h("h1", {}, t("fleet")), h("p", { class: "empty" }, t("noFleet")));
      put(h("h1", {}, t("fleet")), found.map(({ name, url, figures, cause, seen_at }) => h("section", { class: cause ? "card stale" : "card", "aria-label": name },
        h("div", { class: "row" }, h("h2", {}, h("a", { href: url, rel: "noreferrer" }, name)), h("span", { class: cause ? "badge failed" : "badge completed" }, cause ? t("stale") : t("live"))),
        cause && h("p", { class: "failure" }, `${cause}. ${t("lastSeen")}: ${time(seen_at)}`),
        figures && Object.entries(figures.parts).map(([part, why]) => h("p", { class: "failure" }, `${part}: ${why}`)),
        figures && h("div", { class: "tiles" }, tile(t("running"), number(figures.running_total)), tile(t("waiting"), number(figures.waiting_total)),
          tile(t("oldest"), figures.waiting_total ? duration(figures.oldest_waiting_s) : "–"), tile(t("throughput"), number(figures.items_per_s)),
          tile(t("seats"), number(figures.seats)), tile(t("accounts"), number(Object.values(figures.accounts).reduce((a, b) => a + b, 0)))))));
    } catch (error) {
      put(h("h1", {}, t("fleet")), error.status === 403 ? h("p", { class: "empty" }, t("notAllowed")) : failure(error));
    }
  };
  let timer = 0;
  return { start: (put) => { draw(put); timer = setInterval(draw, 3000, put); }, leave: () => clearInterval(timer) };
}

export function schedules() {
  let after = null;
  const start = async (put) => {
    const page = await read(`/schedules?limit=${PAGE}${after === null ? "" : `&after=${encodeURIComponent(after)}`}`);
    const again = () => start(put).catch((error) => put(h("h1", {}, t("schedules")), failure(error)));
    put(h("h1", {}, t("schedules")), card(t("schedules"), table(t("schedules"), ["id", t("when"), t("next"), t("target"), t("job"), t("error"), t("actions")],
      page.schedules.map((one) => [one.id, `${one.when} ${one.time_zone ?? ""}`, one.paused ? t("paused") : time(one.next[0]),
        one.job.target, one.last_uid ? link(one.last_uid, one.last_uid) : "–", one.error ?? "–",
        h("button", { onclick: async () => {
          await attempt(() => call("PATCH", `/schedules/${encodeURIComponent(one.id)}`, { paused: !one.paused }));
          again();
        } }, one.paused ? t("resume") : t("pause"))])), pager(after === null, page.next ?? null, (from) => { after = from; again(); })));
  };
  return { start: (put) => start(put).catch((error) => put(h("h1", {}, t("schedules")), failure(error))) };
}
