// The API: requests with the token of this tab, and streams that come back by themselves.
const KEY = "cuscuta-token";
const SILENT_MS = 40_000; // a stream says something every 15 s

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = () => (token.get() ? { authorization: `Bearer ${token.get()}` } : {});

async function refusal(answer) {
  let text = `${answer.status} ${answer.statusText}`;
  try {
    const problem = await answer.json();
    text = problem.detail ?? problem.title ?? text;
    const faults = (problem.errors ?? []).map((fault) => [fault.field, fault.message, fault.fix].filter(Boolean).join(": "));
    text = [text, ...faults].join(" — ");
  } catch { /* not a problem document */ }
  return new Refused(answer.status, text);
}

export async function call(method, path, body) {
  const options = { method, headers: headers(), cache: "no-store" };
  if (body !== undefined) {
    options.headers["content-type"] = typeof body === "string" ? "text/plain" : "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "offline");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.status === 204 ? null : answer.json();
}

export const read = (path) => call("GET", path);

export async function download(path, accept, name) {
  const answer = await fetch(path, { headers: { ...headers(), accept } });
  if (!answer.ok) throw await refusal(answer);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// EventSource cannot send a token, so the stream is read by fetch. Returns what ends it.
export function follow(path, { on, state }) {
  const abort = new AbortController();
  (async () => {
    for (let pause = 500; !abort.signal.aborted; pause = Math.min(pause * 2, 8000)) {
      try {
        const answer = await fetch(path, { headers: headers(), signal: abort.signal, cache: "no-store" });
        if (!answer.ok) throw await refusal(answer);
        state("live");
        pause = 500;
        for await (const [event, data] of events(answer.body)) on(event, JSON.parse(data));
        state("lost");
      } catch (error) {
        if (abort.signal.aborted) return;
        if ([401, 403, 404].includes(error.status)) return state("refused", error);
        state("lost", error);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  })();
  return () => abort.abort();
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const silence = setTimeout(() => reader.cancel(), SILENT_MS);
    const { value, done } = await reader.read();
    clearTimeout(silence);
    if (done) return;
    text = (text + value).replaceAll("\r\n", "\n");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const event = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message";
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) yield [event, data];
    }
  }
}
