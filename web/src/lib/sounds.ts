/** Sounds for models that hear, as a request carries them. */

/** What browsers call the two kinds that the server reads. */
const FORMATS: Record<string, string> = {
  "audio/wav": "wav",
  "audio/x-wav": "wav",
  "audio/wave": "wav",
  "audio/vnd.wave": "wav",
  "audio/mpeg": "mp3",
  "audio/mp3": "mp3",
};

export const isSound = (type: string) => type in FORMATS;

/** The part of a message for a data: address of a sound. */
export const soundPart = (type: string, url: string): object => ({
  type: "input_audio",
  input_audio: { data: url.slice(url.indexOf(",") + 1), format: FORMATS[type] },
});
