/** Files for a message: text as it is, PDF as its text, pictures and sounds for models that take them. */
import { putBlob } from "../lib/db";
import { uid } from "../lib/id";
import { asUrl, hears, imageUrl, isImage, sees } from "../lib/images";
import { isSound } from "../lib/sounds";
import type { Attachment } from "./types";

const MAX_BYTES = 8_000_000;
const MAX_IMAGE_BYTES = 30_000_000;
const MAX_SOUND_BYTES = 20_000_000;
export const PASTE_LIMIT = 4096;

async function keep(name: string, type: string, text: string, size = text.length): Promise<Attachment> {
  const blob = uid();
  try {
    await putBlob(blob, text);
    return { name, type, size, blob };
  } catch {
    return { name, type, size, blob, text }; // a full quota: it stays with its message
  }
}

async function picture(file: File, model: string): Promise<Attachment> {
  if (file.size > MAX_IMAGE_BYTES) throw new Error(`${file.name} is larger than 30 MB.`);
  if (!(await sees(model))) throw new Error(`${file.name}: ${model || "this model"} does not take images.`);
  return keep(file.name, file.type, await imageUrl(file), file.size);
}

async function sound(file: File, model: string): Promise<Attachment> {
  if (file.size > MAX_SOUND_BYTES) throw new Error(`${file.name} is larger than 20 MB.`);
  if (!(await hears(model))) throw new Error(`${file.name}: ${model || "this model"} does not take sounds.`);
  return keep(file.name, file.type, await asUrl(file), file.size);
}

async function pdfText(file: File): Promise<string> {
  const { extractText, getDocumentProxy } = await import("unpdf");
  const pdf = await getDocumentProxy(new Uint8Array(await file.arrayBuffer()), { isEvalSupported: false } as object);
  const { text } = await extractText(pdf, { mergePages: true });
  if (!text.trim()) throw new Error(`${file.name} has no text; it may be a scan.`);
  return text;
}

export async function attach(file: File, model: string): Promise<Attachment> {
  if (isImage(file.type)) return picture(file, model);
  if (isSound(file.type)) return sound(file, model);
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than 8 MB.`);
  if (file.type === "application/pdf" || /\.pdf$/i.test(file.name))
    return keep(file.name, "application/pdf", await pdfText(file));
  const text = await file.text();
  if (text.includes("\u0000")) throw new Error(`${file.name} is not a text file.`);
  return keep(file.name, file.type || "text/plain", text);
}

export const attachText = (text: string) => keep("pasted.txt", "text/plain", text);
