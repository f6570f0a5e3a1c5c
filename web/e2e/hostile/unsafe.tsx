/** The twin of src/md/safe.ts without its care, for the test that must then fail. */
import { h } from "preact";

export const safeUrl = (url: string): string | null => url;
export const htmlAs = (raw: string) => h("span", { dangerouslySetInnerHTML: { __html: raw } });
export const decode = (text: string): string => text;
export const visible = (text: string): string => text;
