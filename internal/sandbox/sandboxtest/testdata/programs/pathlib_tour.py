from pathlib import Path, PurePosixPath
p = Path("data/in"); p.mkdir(parents=True, exist_ok=True)
for n in ("a.txt", "b.csv", "c.txt"): (p / n).write_text(n * 2)
print(sorted(x.name for x in p.glob("*.txt")), (p / "b.csv").read_text(), sum(x.stat().st_size for x in p.iterdir()))
q = PurePosixPath("/x/y/../z.tar.gz"); print(q.name, q.stem, q.suffixes, q.parent, q.with_suffix(".zip"), q.parts, q.relative_to("/x"))
(p / "a.txt").rename(p / "d.txt"); (p / "b.csv").unlink(); print(sorted(x.as_posix() for x in Path("data").rglob("*")))
print((p / "none").exists(), p.is_dir(), Path("a") / "b" / Path("c"), PurePosixPath("a/b").match("*/b"))
with (p / "e.txt").open("w", encoding="utf-8") as f: f.write("ü")
print((p / "e.txt").read_bytes())
