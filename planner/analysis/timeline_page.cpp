#include "planner/analysis/timeline_page.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/analysis/plot.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

/// A browser draws this many smoothly.
constexpr std::size_t most_spans = 250'000;

constexpr const char* style = R"(
:root{color-scheme:light dark;--page:#fcfcfb;--ink:#1d1d1b;--soft:#5f5e5a;--rule:#dddcd6}
@media (prefers-color-scheme:dark){:root{--page:#1a1a19;--ink:#ecebe6;--soft:#a9a8a2;--rule:#3b3a37}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:1.5rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1.05rem;margin:1.2rem 0 .3rem}p{color:var(--soft);margin:.3rem 0}
canvas{width:100%;display:block;border:1px solid var(--rule);touch-action:none}
ul{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;padding:0;margin:.4rem 0}
li span{display:inline-block;width:.9rem;height:.8rem;margin-right:.3rem;vertical-align:middle}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--page);padding:.2rem .5rem;
border-radius:.3rem;font-size:.85rem;display:none;white-space:pre}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--rule)}th{font-weight:600}
)";

// Times are whole nanoseconds. Row: [name, [t0, length, kind, chunk, micro-batch, unit, cause,
// ...]].
constexpr const char* script = R"(
const row=16,left=D.left,cv=document.getElementById('g'),mv=document.getElementById('m'),
tip=document.getElementById('tip'),css=getComputedStyle(document.documentElement);
let a=0,b=D.end||1,drag=null;
const ink=()=>css.getPropertyValue('--ink'),soft=()=>css.getPropertyValue('--soft');
function size(c,h){const r=window.devicePixelRatio||1;c.style.height=h+'px';c.width=c.clientWidth*r;
c.height=h*r;const x=c.getContext('2d');x.scale(r,r);x.clearRect(0,0,c.clientWidth,h);x.font='11px system-ui';return x}
const X=(c,t)=>left+(t-a)/(b-a)*(c.clientWidth-left);
function time(t){return t>=1e9?(t/1e9).toFixed(3)+' s':t>=1e6?(t/1e6).toFixed(3)+' ms':(t/1e3).toFixed(1)+' us'}
function axis(x,c,h){x.fillStyle=soft();const n=8;for(let i=0;i<=n;i++){const t=a+(b-a)*i/n,p=X(c,t);
x.fillRect(p,0,.5,h);x.fillText(time(t),Math.min(p+3,c.clientWidth-60),h-3)}}
function draw(){const h=D.rows.length*row+16,x=size(cv,h);axis(x,cv,h);
D.rows.forEach((r,i)=>{x.fillStyle=ink();x.fillText(r[0],4,i*row+12);const s=r[1];let last=-1;
for(let k=0;k<s.length;k+=7){const t0=s[k],t1=t0+s[k+1];if(t1<a||t0>b)continue;
const p=Math.max(left,X(cv,t0)),q=X(cv,t1);if(q<last+.3)continue;const w=Math.max(.6,q-p);last=p+w;
x.fillStyle=D.colors[s[k+2]];x.fillRect(p,i*row+2,w,row-4);
if(w>24){x.fillStyle='#fff';x.fillText(label(s,k,w),p+3,i*row+12)}}});memory()}
function label(s,k,w){const n=D.kinds[s[k+2]];return s[k+4]<0?n:(w>60?n[0].toUpperCase()+' c'+s[k+3]+' ':'')+'m'+s[k+4]}
function memory(){const h=160,x=size(mv,h);axis(x,mv,h);let top=0;D.memory.forEach(m=>m[1].forEach((v,i)=>{if(i%2)top=Math.max(top,v)}));
if(!top)return;x.fillStyle=ink();x.fillText((top/2**30).toFixed(1)+' GiB',4,12);
D.memory.forEach((m,j)=>{x.strokeStyle='hsl('+(j*360/D.memory.length)+' 60% 50%)';x.beginPath();
const s=m[1];let y=null;for(let i=0;i<s.length;i+=2){const p=Math.max(left,X(mv,s[i])),q=h-18-(h-24)*s[i+1]/top;
if(y===null)x.moveTo(p,q);else{x.lineTo(p,y);x.lineTo(p,q)}y=q}x.stroke()})}
cv.onwheel=e=>{e.preventDefault();const f=e.deltaY>0?1.25:.8,c=a+(e.offsetX-left)/(cv.clientWidth-left)*(b-a);
a=Math.max(0,c-(c-a)*f);b=Math.min(D.end,c+(b-c)*f);draw()};
cv.onpointerdown=e=>{drag=[e.clientX,a,b];cv.setPointerCapture(e.pointerId)};cv.onpointerup=()=>drag=null;
cv.ondblclick=()=>{a=0;b=D.end;draw()};
cv.onpointermove=e=>{if(drag){const d=(e.clientX-drag[0])/(cv.clientWidth-left)*(drag[2]-drag[1]);
const w=drag[2]-drag[1];a=Math.min(Math.max(0,drag[1]-d),D.end-w);b=a+w;draw();return}
const r=D.rows[Math.floor(e.offsetY/row)],t=a+(e.offsetX-left)/(cv.clientWidth-left)*(b-a);tip.style.display='none';
if(!r)return;const s=r[1];for(let k=0;k<s.length;k+=7)if(s[k]<=t&&t<=s[k]+s[k+1]){
tip.textContent=D.kinds[s[k+2]]+(s[k+4]<0?'':' chunk '+s[k+3]+', micro-batch '+s[k+4]+', unit '+s[k+5])+
'\n'+time(s[k])+' + '+time(s[k+1])+'\nstarted after: '+D.causes[s[k+6]];
tip.style.display='block';tip.style.left=Math.min(e.clientX+12,innerWidth-260)+'px';tip.style.top=e.clientY+12+'px';break}};
cv.onpointerleave=()=>tip.style.display='none';addEventListener('resize',draw);draw();
)";

std::string names(const auto& all) {
    std::string out;
    for (const std::string_view name : all) {
        out += fmt::format("{}\"{}\"", out.empty() ? "" : ",", name);
    }
    return out;
}

/// A stream of a timeline as a row of the chart.
struct ChartRow {
    std::int32_t stage = 0;
    sim::StreamKind stream = sim::StreamKind::compute;
    std::string text; ///< ["name",[numbers]]
};

/// Rows of one timeline whose spans name the tasks of `schedule`.
void add_rows(std::vector<ChartRow>& out, const sim::Timeline& timeline,
              const sim::Schedule& schedule, std::string_view prefix) {
    std::size_t next = 0;
    for (std::size_t t = 0; t < timeline.tracks.size(); ++t) {
        const sim::TimelineTrack& track = timeline.tracks[t];
        const std::string who = track.ranks == 1
                                    ? fmt::format("stage {} rank {}", track.stage, track.rank)
                                    : fmt::format("stage {}", track.stage);
        std::string spans;
        for (; next < timeline.spans.size() && timeline.spans[next].track == t; ++next) {
            if (next >= most_spans) continue;
            const sim::Span& span = timeline.spans[next];
            const bool once = span.task >= schedule.size() ||
                              schedule.micro_batch[span.task] == sim::no_micro_batch;
            spans += fmt::format(
                "{}{},{},{},{},{},{},{}", spans.empty() ? "" : ",", span.t0, span.t1 - span.t0,
                static_cast<int>(span.op), once ? 0 : schedule.chunk[span.task],
                once ? -1 : static_cast<std::int64_t>(schedule.micro_batch[span.task]),
                once ? 0 : schedule.unit[span.task], static_cast<int>(span.cause));
        }
        if (spans.empty()) continue;
        out.push_back(
            {track.stage, track.stream,
             fmt::format("[\"{}{} {}\",[{}]]", prefix, who, sim::name_of(track.stream), spans)});
    }
}

std::string rows(const sim::Simulation& s, const sim::Measurement* over) {
    std::vector<ChartRow> all;
    add_rows(all, s.timeline, s.schedule, over != nullptr ? "predicted " : "");
    if (over != nullptr && over->timeline) {
        add_rows(all, *over->timeline, sim::schedule_of(*over), "measured ");
        std::stable_sort(all.begin(), all.end(), [](const ChartRow& a, const ChartRow& b) {
            return std::pair(a.stage, a.stream) < std::pair(b.stage, b.stream);
        });
    }
    std::string out;
    for (const ChartRow& row : all) {
        out += (out.empty() ? "" : ",\n") + row.text;
    }
    return out;
}

std::string memory(const sim::Simulation& s) {
    std::string out;
    for (const sim::Counter& counter : s.timeline.counters) {
        if (counter.name != "memory") continue;
        std::string points;
        for (std::size_t i = 0; i < counter.t.size(); ++i) {
            points += fmt::format("{}{},{:.0f}", points.empty() ? "" : ",", counter.t[i],
                                  counter.values[i]);
        }
        out += fmt::format("{}[{},[{}]]", out.empty() ? "" : ",\n", counter.stage, points);
    }
    return out;
}

std::string table(const sim::Simulation& s) {
    std::string out = "<table><tr><th>stage</th><th>busy</th><th>utilisation</th>";
    std::array<bool, sim::time_kind_count> used{};
    for (const sim::StageActivity& a : s.stages) {
        for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
            used[k] = used[k] || a.exposed.amounts[k].value() > 0.0;
        }
    }
    for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
        if (used[k]) {
            out += fmt::format("<th>{}</th>", sim::name_of(static_cast<sim::TimeKind>(k)));
        }
    }
    out += "</tr>\n";
    for (const sim::StageActivity& a : s.stages) {
        out += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.1f} %</td>", a.stage,
                           sim::to_text(a.busy), 100.0 * a.utilisation);
        for (std::size_t k = 0; k < sim::time_kind_count; ++k) {
            if (used[k]) out += fmt::format("<td>{}</td>", sim::to_text(a.exposed.amounts[k]));
        }
        out += "</tr>\n";
    }
    return out + "</table>";
}

} // namespace

std::string task_color(sim::TaskKind kind) {
    constexpr std::array<const char*, sim::task_kind_count> colors = {
        "#2a6fbb", "#12866a", "#4f9ec4", "#7357b8", "#c8501e", "#b07d00", "#d9b04a", "#a8498c",
        "#c9c8c2", "#8c2f6b", "#a8498c", "#6b6a66", "#7a5c3e", "#9c7f5e", "#555555"};
    return colors[static_cast<std::size_t>(kind)];
}

std::string timeline_page(const sim::Simulation& s, const std::string& title,
                          const sim::Measurement* over) {
    std::vector<const std::vector<sim::Span>*> layers = {&s.timeline.spans};
    if (over != nullptr && over->timeline) layers.push_back(&over->timeline->spans);
    const auto& kinds = sim::EnumNames<sim::TaskKind>::names;
    std::string colors;
    std::string legend;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        const auto kind = static_cast<sim::TaskKind>(k);
        colors += fmt::format("{}\"{}\"", colors.empty() ? "" : ",", task_color(kind));
        const bool shown = std::any_of(layers.begin(), layers.end(), [&](const auto* spans) {
            return std::any_of(spans->begin(), spans->end(),
                               [&](const sim::Span& span) { return span.op == kind; });
        });
        if (shown) {
            legend += fmt::format("<li><span style=\"background:{}\"></span>{}</li>",
                                  task_color(kind), kinds[k]);
        }
    }
    std::int64_t end = 0;
    std::size_t left_out = 0;
    for (const auto* spans : layers) {
        for (const sim::Span& span : *spans) {
            end = std::max(end, span.t1);
        }
        left_out += spans->size() > most_spans ? spans->size() - most_spans : 0;
    }
    const std::string note =
        left_out > 0 ? fmt::format(" The last {} spans are left out of the chart.", left_out) : "";
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>"
        "<style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>Step {2}, {3} tasks, {4} events. "
        "Wheel: zoom. Drag: move. Double click: all.{5}</p>\n<ul>{6}</ul>\n<canvas "
        "id=\"g\"></canvas>\n"
        "<h2>Memory allocated per rank</h2>\n<canvas id=\"m\"></canvas>\n"
        "<h2>What stages do and wait for</h2>\n{7}\n<div id=\"tip\"></div>\n<script>\n"
        "const "
        "D={{left:{15},end:{8},kinds:[{9}],causes:[{10}],colors:[{11}],rows:[{12}],memory:[{13}]}};"
        "{14}"
        "</script></body></html>\n",
        html_text(title), style, sim::to_text(s.step), s.tasks, s.events, note, legend, table(s),
        end, names(kinds), names(sim::EnumNames<sim::WaitCause>::names), colors, rows(s, over),
        memory(s), script, over != nullptr ? 240 : 150);
}

} // namespace shardplan::plan
