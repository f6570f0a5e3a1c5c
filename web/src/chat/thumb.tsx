/** An attached picture, small. Its bytes lie apart from the message and come when it is shown. */
import { useEffect, useState } from "preact/hooks";
import { getBlob } from "../lib/db";
import type { Attachment } from "./types";

export function Thumb({ file }: { file: Attachment }) {
  const [url, setUrl] = useState(file.text ?? "");
  const [gone, setGone] = useState(false);
  useEffect(() => {
    if (file.text) return;
    let live = true;
    getBlob(file.blob).then((data) => {
      if (!live) return;
      setUrl(data);
      setGone(!data);
    });
    return () => {
      live = false;
    };
  }, [file.blob]);
  if (gone) return <span class="chip dim">{file.name}: no longer here</span>;
  return <span class="thumb">{url && <img src={url} alt={file.name} title={file.name} />}</span>;
}
