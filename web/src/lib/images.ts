/** Pictures and sounds for models that take them: whether one does, and a file as the address that a request carries. */
import { statOf } from "./adapters";
import { post } from "./api";

const LONGEST = 2048;
const KEPT_BYTES = 1_500_000;
/** What the server reads as it is. A JPEG is drawn anew: its orientation may stand in a tag that only browsers follow. */
const KEPT = ["image/png", "image/webp", "image/gif"];

/** What is known without asking; undefined: the model was not loaded yet. */
const knownCapable = (model: string, what: string) => statOf(model)?.capabilities?.includes(what);

/** Loads a model that nobody has used yet: its file says what it can do. */
async function capable(model: string, what: string): Promise<boolean> {
  const known = knownCapable(model, what);
  if (known !== undefined) return known;
  return (await post<{ capabilities?: string[] }>("api/show", { model })).capabilities?.includes(what) ?? false;
}

export const seesNow = (model: string) => knownCapable(model, "vision");
export const sees = (model: string) => capable(model, "vision");
export const hearsNow = (model: string) => knownCapable(model, "audio");
export const hears = (model: string) => capable(model, "audio");

export const isImage = (type: string) => type.startsWith("image/");

export const asUrl = (blob: Blob) =>
  new Promise<string>((tell, fail) => {
    const reader = new FileReader();
    reader.onload = () => tell(reader.result as string);
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(blob);
  });

/** A data: address, at most 2048 px wide and high. */
export async function imageUrl(file: File): Promise<string> {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} cannot be read as a picture.`);
  });
  const scale = Math.min(1, LONGEST / Math.max(image.width, image.height));
  if (scale === 1 && KEPT.includes(file.type) && file.size <= KEPT_BYTES) return asUrl(file);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error(`${file.name} cannot be drawn here.`);
  if (file.type === "image/jpeg" || file.size > KEPT_BYTES) {
    pen.fillStyle = "#fff"; // JPEG has no holes
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/jpeg", 0.92);
  }
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
