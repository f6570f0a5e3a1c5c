/** Tries a server.yaml before it is put in place; and the checks of `hearth doctor`. */
import { useEffect, useState } from "preact/hooks";
import { get, post } from "../lib/api";

interface Problem {
  line: number;
  column: number;
  message: string;
}

export function CheckForm() {
  const [yaml, setYaml] = useState("");
  const [found, setFound] = useState<Problem[] | null>(null);
  const [why, setWhy] = useState("");
  const check = async (e: Event) => {
    e.preventDefault();
    setWhy("");
    try {
      setFound((await post<{ data: Problem[] }>("v1/config/check", { yaml })).data);
    } catch (error) {
      setWhy((error as Error).message);
    }
  };
  return (
    <form class="stack" onSubmit={check}>
      <label class="field">
        <span>server.yaml</span>
        <textarea
          class="mono"
          rows={12}
          spellcheck={false}
          placeholder={"transport:\n  port: 11434"}
          value={yaml}
          onInput={(e) => {
            setYaml(e.currentTarget.value);
            setFound(null);
          }}
        />
      </label>
      <button type="submit" class="primary">
        Check
      </button>
      <div role="status">
        {why && <p class="problem">{why}</p>}
        {found?.length === 0 && <p class="good">In order.</p>}
        {found && found.length > 0 && (
          <ul class="problems">
            {found.map((p) => (
              <li key={`${p.line}:${p.column}:${p.message}`}>
                <span class="dim">{p.line ? `line ${p.line}` : "file"}</span> <span class="problem">{p.message}</span>
              </li>
            ))}
          </ul>
        )}
      </div>
    </form>
  );
}

interface Finding {
  check: string;
  status: "ok" | "warning" | "broken";
  message: string;
  remedy: string | null;
}

export function Doctor() {
  const [list, setList] = useState<Finding[] | null>(null);
  const [why, setWhy] = useState("");
  const look = () => {
    setList(null);
    get<{ checks: Finding[] }>("v1/doctor")
      .then((d) => setList(d.checks))
      .catch((e: Error) => setWhy(e.message));
  };
  useEffect(look, []);
  if (why) return <p class="problem">{why}</p>;
  if (!list) return <p class="dim">Looking at the machine</p>;
  return (
    <>
      <ul class="findings">
        {list.map((f, i) => (
          <li key={i}>
            <span class={`status ${f.status}`}>{f.status}</span>
            <span class="dim">{f.check}</span>
            <span>
              {f.message}
              {f.remedy && <div class="dim">{f.remedy}</div>}
            </span>
          </li>
        ))}
      </ul>
      <button type="button" onClick={look}>
        Look again
      </button>
    </>
  );
}
