// English and Simplified Chinese. A word that is missing in one language is shown in the other.
const WORDS = {
  overview: ["Overview", "总览"], jobs: ["Jobs", "任务"], job: ["Job", "任务"], workers: ["Workers", "工作进程"],
  accounts: ["Accounts", "账号"], schedules: ["Schedules", "定时"], fleet: ["Fleet", "部署群"],
  running: ["Running", "运行中"], waiting: ["Waiting", "等待中"], queueing: ["waiting", "等待中"], pending: ["running", "运行中"],
  completed: ["completed", "已完成"], failed: ["failed", "失败"], cancelled: ["cancelled", "已取消"],
  target: ["Target", "目标"], catalogue: ["Catalogue", "目录"], progress: ["Progress", "进度"], eta: ["Left", "剩余"],
  rate: ["Items/s", "项/秒"], items: ["Items", "项目"], status: ["Status", "状态"], priority: ["Priority", "优先级"],
  group: ["Group", "组"], created: ["Submitted", "提交于"], ended: ["Ended", "结束于"], since: ["Since", "始于"],
  seats: ["Seats", "席位"], working: ["at work", "工作中"], throughput: ["Items a second", "每秒项目"],
  oldest: ["Oldest waiting", "最久等待"], failures: ["Failures", "失败记录"], free: ["free", "空闲"], nothing: ["Nothing here.", "暂无内容。"],
  noRunning: ["No job runs. Submit one.", "没有运行中的任务。提交一个吧。"], noWorkers: ["No worker is alive: nothing is polled.", "没有存活的工作进程，不会有轮询。"],
  loading: ["Loading…", "加载中…"], offline: ["The server does not answer; trying again.", "服务器无响应，正在重试。"],
  live: ["live", "实时"], lost: ["connecting…", "重连中…"], signIn: ["Sign in", "登录"], signOut: ["Sign out", "退出"],
  tokenHint: ["An API token. It stays in this tab and is gone when you close it. `cuscuta tokens make` makes one.",
    "API 令牌。只保存在此标签页中，关闭后即失效。可用 `cuscuta tokens make` 创建。"],
  token: ["Token", "令牌"], refused: ["This token is not accepted.", "令牌无效。"], back: ["Back", "返回"],
  submit: ["Submit", "提交"], submitJob: ["Submit a job", "提交任务"], cancel: ["Cancel", "取消任务"], retry: ["Retry", "重试"],
  cancelSure: ["End this job now? What is stored stays readable.", "现在结束此任务？已存结果仍可读取。"],
  retrySure: ["Run again what has no result?", "重新运行没有结果的部分？"],
  search: ["Search target, catalogue, label or uid", "搜索目标、目录、标签或 uid"], all: ["all", "全部"], older: ["Older", "更早"], first: ["First page", "第一页"], nextPage: ["Next page", "下一页"],
  map: ["Chunk map", "分块图"], done: ["done", "完成"], held: ["at work", "处理中"], ridden: ["with another job", "随其他任务"], given_up: ["given up", "已放弃"],
  timeline: ["Timeline", "时间线"], results: ["Results", "结果"], preview: ["First items", "前几项"], download: ["Download", "下载"],
  value: ["Value", "值"], error: ["Error", "错误"], kind: ["Kind", "类型"], message: ["Message", "信息"], when: ["When", "时间"],
  account: ["Account", "账号"], rating: ["Rating", "评分"], state: ["State", "状态"], rests: ["Rests until", "休息至"],
  itemTime: ["An item takes", "每项耗时"], doing: ["Doing", "正在处理"], idle: ["idle", "空闲"], version: ["Version", "版本"],
  release: ["Release", "释放"], disable: ["Disable", "停用"], enable: ["Set rating", "设置评分"], email: ["Name", "名称"],
  importAccounts: ["Import accounts", "导入账号"], importHint: ["One `email:password` a line.", "每行一个 `email:password`。"],
  imported: ["added / changed", "新增 / 更新"], disableSure: ["Take this account out of use?", "停用此账号？"],
  releaseSure: ["Take the account away from whoever holds it?", "从当前占用者处收回该账号？"],
  pause: ["Pause", "暂停"], resume: ["Resume", "恢复"], next: ["Next", "下次"], paused: ["paused", "已暂停"],
  lately: ["Ended in the last hour", "最近一小时结束的任务"], failed2: ["Failed", "失败"],
  actions: ["Actions", "操作"],
  notFound: ["There is no such page.", "页面不存在。"],
  stale: ["no answer", "无响应"], lastSeen: ["last seen", "上次在线"], notAllowed: ["This needs a token of a wider scope.", "需要更高权限的令牌。"],
  noFleet: ["CUSCUTA_FLEET names no other deployment.", "CUSCUTA_FLEET 未配置其他部署。"],
};

const KEY = "cuscuta-language";
let language = localStorage.getItem(KEY) ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export const locale = () => (language === "zh" ? "zh-CN" : "en");

export function speak(chosen) {
  language = chosen;
  localStorage.setItem(KEY, chosen);
  document.documentElement.lang = locale();
}

export const spoken = () => language;

export function t(word) {
  const found = WORDS[word];
  return found ? (found[language === "zh" ? 1 : 0] ?? found[0]) : String(word);
}
