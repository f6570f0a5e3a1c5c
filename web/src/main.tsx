import { render } from "preact";
import { Shell } from "./app/shell";
import { loadChats } from "./chat/store";
import { connect } from "./lib/server";

render(<Shell />, document.getElementById("app")!);
loadChats();
connect();
