import os, shutil
for p in ("a/b/c", "a/d"): os.makedirs(p)
for p in ("a/1.txt", "a/b/2.txt", "a/b/c/3.txt"): open(p, "w").write(p)
for root, dirs, files in os.walk("a"): dirs.sort(); print(root, dirs, sorted(files))
print(sorted(e.name for e in os.scandir("a") if e.is_dir()), shutil.copytree("a/b", "e"), sorted(os.listdir("e")))
os.replace("a/1.txt", "a/9.txt"); shutil.rmtree("a/b"); print(sorted(os.listdir("a")), os.path.exists("a/b"))
import glob, fnmatch; print(sorted(glob.glob("**/*.txt", recursive=True)), fnmatch.filter(["a.py", "b.txt"], "*.py"))
