/** Files for a message: text as it is, PDF as its text. Images need a model that takes them. */
import { putBlob } from "../lib/db";
import { uid } from "../lib/id";
import type { Attachment } from "./types";

const MAX_BYTES = 8_000_000;
export const PASTE_LIMIT = 4096;

async function keep(name: string, type: string, text: string): Promise<Attachment> {
  const blob = uid();
  try {
    await putBlob(blob, text);
    return { name, type, size: text.length, blob };
  } catch {
    return { name, type, size: text.length, blob, text }; // a full quota: it stays with its message
  }
}

async function pdfText(file: File): Promise<string> {
  const { extractText, getDocumentProxy } = await import("unpdf");
  const pdf = await getDocumentProxy(new Uint8Array(await file.arrayBuffer()), { isEvalSupported: false } as object);
  const { text } = await extractText(pdf, { mergePages: true });
  if (!text.trim()) throw new Error(`${file.name} has no text; it may be a scan.`);
  return text;
}

export async function attach(file: File): Promise<Attachment> {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than 8 MB.`);
  if (file.type.startsWith("image/")) throw new Error(`${file.name}: no model here takes images yet.`);
  if (file.type === "application/pdf" || /\.pdf$/i.test(file.name))
    return keep(file.name, "application/pdf", await pdfText(file));
  const text = await file.text();
  if (text.includes("\u0000")) throw new Error(`${file.name} is not a text file.`);
  return keep(file.name, file.type || "text/plain", text);
}

export const attachText = (text: string) => keep("pasted.txt", "text/plain", text);
