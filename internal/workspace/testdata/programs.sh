# Runs in a view: ordinary programs doing what they do.
set -eu
export HOME="$PWD" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost

git init -q repo
cp -r seed/. repo/
git -C repo add .
git -C repo commit -qm one
git -C repo checkout -qb side
git -C repo mv dir moved
git -C repo commit -qm two
git -C repo checkout -q -
git -C repo merge -q side
git -C repo gc -q

sqlite3 db.sqlite 'pragma journal_mode=wal; create table t(x); with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t select i from n; delete from t where x%3=0; vacuum;' >/dev/null
sqlite3 old.sqlite 'insert into t values(99); delete from t where x<10;'

printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n' > prog.c
cc -O1 -o prog prog.c
[ "$(./prog)" = compiled ]

python3 - <<'PY'
import json, os, shutil, tempfile
os.makedirs("py/deep/er")
with open("py/deep/er/x.json", "w") as f:
    json.dump({"a": list(range(1000))}, f)
fd, name = tempfile.mkstemp(dir="py")
os.write(fd, b"atomic"); os.fsync(fd); os.close(fd)
os.replace(name, "py/replaced")
os.link("py/replaced", "py/linked")
os.symlink("replaced", "py/symlink")
shutil.copytree("seed", "py/copy", symlinks=True)
shutil.rmtree("py/copy/dir")
PY

tar cf seed.tar seed
mkdir untar && tar xf seed.tar -C untar
rsync -a --delete seed/ synced/
rsync -a --delete --inplace seed/ partly/
