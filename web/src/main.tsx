import { render } from "preact";
import { Shell } from "./app/shell";
import { loadChats } from "./chat/store";
import { keepSynced } from "./chat/sync";
import { keepAdapters } from "./lib/adapters";
import { keepHistory } from "./lib/history";
import { connect } from "./lib/server";

const place = document.getElementById("app")!;
place.replaceChildren(); // the frame that was painted before this script came
render(<Shell />, place);
loadChats();
keepSynced();
keepHistory();
keepAdapters();
connect();
