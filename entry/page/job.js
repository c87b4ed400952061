// One job: its chunk map as it fills, what went wrong, what happened when, and its first results.
import { ask, badge, bar, duration, failure, h, number, table, time } from "./dom.js";
import { attempt } from "./pages.js";
import { call, download, read } from "./server.js";
import { t } from "./words.js";

const ENDED = ["completed", "failed", "cancelled"];
const STATES = ["done", "held", "ridden", "waiting", "given_up"];

function chunkMap(cells) {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const cell of cells) counts[cell.state] += cell.stop - cell.start;
  const said = STATES.map((state) => `${number(counts[state])} ${t(state)}`).join(", ");
  return h("section", { class: "card", "aria-label": t("map") }, h("h2", {}, t("map")),
    h("div", { class: "map", role: "img", "aria-label": said }, cells.map((cell) => h("div", {
      class: `cell ${cell.state}`, "data-start": cell.start, "data-grow": cell.stop - cell.start,
      title: `${cell.start}–${cell.stop}: ${t(cell.state)}${cell.by ? `, ${cell.by}` : ""}` }))),
    h("p", { class: "legend" }, STATES.map((state) => h("span", {}, h("i", { class: `cell ${state}` }), `${t(state)} ${number(counts[state])}`))));
}

export function jobPage(uid) {
  let items = null;
  let over = false;
  const preview = async (put, detail) => {
    items = await read(`/jobs/${uid}/results?to=${Math.min(detail.job.span[1], detail.job.span[0] + 20)}`).catch(() => null);
    draw(put, detail);
  };
  const act = (title, sure, action, danger) => async () => {
    if (await ask(title, h("p", {}, sure), title, danger)) await attempt(action);
  };
  const draw = (put, { job, cells, events }) => {
    const ended = ENDED.includes(job.status);
    put(h("div", { class: "row" }, h("h1", {}, job.target), badge(job.status),
      ended ? job.status !== "completed" && h("button", { onclick: act(t("retry"), t("retrySure"), () => call("POST", `/jobs/${uid}/retry`)) }, t("retry"))
        : h("button", { class: "danger", onclick: act(t("cancel"), t("cancelSure"), () => call("DELETE", `/jobs/${uid}`), true) }, t("cancel"))),
    h("div", { class: "tiles" },
      h("div", { class: "tile" }, h("b", { id: "done" }, `${number(job.progress.done)} / ${number(job.progress.total)}`), bar(job.progress.done, job.progress.total, t("progress"))),
      h("div", { class: "tile" }, h("b", {}, ended ? duration((new Date(job.ended_at) - new Date(job.admitted_at ?? job.created_at)) / 1000) : duration(job.eta_s)), h("span", {}, ended ? t("ended") : t("eta"))),
      h("div", { class: "tile" }, h("b", {}, job.rate_per_s ?? "–"), h("span", {}, t("rate"))),
      h("div", { class: "tile" }, h("b", {}, number(Object.values(job.failure_counts).reduce((a, b) => a + b, 0))), h("span", {}, t("failures")))),
    chunkMap(cells),
    h("section", { class: "card", "aria-label": t("failures") }, h("h2", {}, t("failures")),
      table(t("failures"), [t("kind"), t("message"), t("items"), t("when")], job.failures.slice(-20).reverse().map((one) =>
        [one.type, one.message, one.span ? `${one.span[0]}–${one.span[1]}` : "–", time(one.at)]))),
    h("section", { class: "card", "aria-label": t("timeline") }, h("h2", {}, t("timeline")),
      table(t("timeline"), [t("when"), t("status")], events.map((one) => [time(one.at), one.detail ? `${one.what}: ${one.detail}` : one.what]))),
    h("section", { class: "card", "aria-label": t("results") }, h("h2", {}, t("results")),
      h("div", { class: "actions" }, [["NDJSON", "application/x-ndjson", "ndjson"], ["CSV", "text/csv", "csv"], ["Parquet", "application/vnd.apache.parquet", "parquet"]].map(([name, accept, ending]) =>
        h("button", { onclick: () => attempt(() => download(`/jobs/${uid}/results`, accept, `${uid}.${ending}`)) }, `${t("download")} ${name}`))),
      items && table(t("preview"), ["#", "id", t("value")], items.items.map((one) =>
        [one.index, one.id, one.error ? `${one.error.type}: ${one.error.message}` : JSON.stringify(one.value)]))));
    for (const cell of document.querySelectorAll(".map .cell")) cell.style.flexGrow = cell.dataset.grow;
    if (ended && !over) { over = true; preview(put, { job, cells, events }); }
    if (!ended) over = false;
  };
  return {
    path: `/deployment/changes?uid=${encodeURIComponent(uid)}`,
    start: (put) => read(`/deployment/jobs/${encodeURIComponent(uid)}`).then((detail) => draw(put, detail), (error) => put(h("h1", {}, t("job")), failure(error))),
    on: (event, data, put) => { if (event === "job") draw(put, data); },
  };
}
