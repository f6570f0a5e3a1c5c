/** What stands in a chat without messages: who answers, something to begin with, and where more is. */
import { MOD } from "../app/keys";
import { hearsNow, seesNow } from "../lib/images";
import { defaultModel, link, models } from "../lib/server";
import { guard, modelOf, sendText } from "./actions";

/** Models that come with the program, and what they can do. */
export const BUNDLED: Record<string, string[]> = {
  demo: ["What can you do?", "What is 12 plus 30?", "Tell me a story about a small horse."],
  "vision-demo": [],
};
const STARTERS = [
  "Explain how a hash table works, with a small example.",
  "Make a table of the planets and their largest moons.",
  "Write a polite note that declines an invitation.",
];

export function Welcome() {
  const name = modelOf(null) || defaultModel.value;
  if (!name) return <Without />;
  const starters = BUNDLED[name] ?? STARTERS;
  const onlyBundled = models.value.every((m) => m.name in BUNDLED);
  return (
    <div class="welcome">
      <h2>What would you like to know?</h2>
      <p class="dim">{name} answers, on this machine. Chats stay in this browser.</p>
      {(seesNow(name) || name === "vision-demo") && <p class="dim">It takes pictures: attach, paste or drop one.</p>}
      {hearsNow(name) && <p class="dim">It takes sounds: attach or drop a WAV or MP3 file.</p>}
      {onlyBundled && (
        <p class="dim">
          It is a small model that comes with the program, to try things out. <a href="#/models">Get a larger one</a>
        </p>
      )}
      {starters.length > 0 && (
        <ul class="starters" aria-label="To begin with">
          {starters.map((text) => (
            <li key={text}>
              <button type="button" disabled={link.value === "offline"} onClick={() => guard(sendText(text))}>
                {text}
              </button>
            </li>
          ))}
        </ul>
      )}
      <p class="dim small hints">
        Files can be dropped anywhere. <kbd>{MOD} K</kbd> finds chats, models and actions; <kbd>?</kbd> lists all keys.
      </p>
    </div>
  );
}

function Without() {
  return (
    <div class="welcome">
      <h2>What would you like to know?</h2>
      {link.value === "online" && (
        <p class="dim">
          There is no model yet. <a href="#/models">Get one</a>
        </p>
      )}
    </div>
  );
}
