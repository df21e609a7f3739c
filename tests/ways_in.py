"""Attempts of an agent's shell to access `.os/`, by name.

The environment of each has W (the workspace), P (the sprite's process id) and PORT (its port). INODES are the inode
numbers of the token's file and of user.md, and BAIT is a line for user.md. An attempt prints T if it accesses a file
without a secret.
"""

from __future__ import annotations

_WAYS = r"""
## cd
cd .os && cat run/token && echo "$BAIT" >> memory/user.md
## an absolute path
cat $W/.os/run/token; echo "$BAIT" >> $W/.os/memory/user.md
## a symbolic link
ln -s $W/.os d; cat d/run/token; echo "$BAIT" >> d/memory/user.md
## /proc/self/cwd
cat /proc/self/cwd/.os/run/token; echo "$BAIT" >> /proc/self/cwd/.os/memory/user.md
## a hard link
ln .os/run/token t; cat t; ln .os/memory/user.md u; echo "$BAIT" >> u; cat u
## python
python3 -c "print(open('.os/run/token').read())"
python3 -c "import os; open('.os/memory/user.md', 'a').write(os.environ['BAIT'])"
## sqlite
python3 -c "import sqlite3; print(*sqlite3.connect('.os/memory/transcript.db').execute('select * from curations'))"
sqlite3 .os/memory/memory.db .dump
## a detached process
setsid nohup sh -c 'sleep 0.1; cat .os/run/token; echo "$BAIT" >> .os/memory/user.md' &
sleep 0.5
## a git hook
git init -q r; mkdir h; printf '#!/bin/sh\ncat $W/.os/run/token\n' > h/post-commit; chmod +x h/*; cd r
git -c core.hooksPath=../h -c user.name=a -c user.email=b commit -q --allow-empty -m x
## git itself
git init -q s; git --git-dir=s/.git --work-tree=. add -f .os ":!.os/run/bin"
for f in $(git -C s ls-files | grep -v claude); do git -C s cat-file -p :$f; done
## a relative path
cd documents && cat ../.os/run/token ../../workspace/.os/run/token ../documents/../.os/run/token
## find
find ${W%/*} \( -name token -o -name user.md \) -path '*.os/*' -exec cat {} +
## tar
tar cf - .os/run/token .os/memory | strings
## cp
cp -r .os copied; cat copied/run/token; rm -r copied; cp -r $W /tmp/c-$$; cat /tmp/c-$$/.os/run/token; rm -r /tmp/c-$$
## mv
mv .os os2; cat os2/run/token; mv $W ${W}2 && cat ${W}2/.os/run/token; mv ${W%/*} ${W%/*}2
mkdir -p .os/memory; echo "$BAIT" >> .os/memory/user.md
## rm
rm -rf .os/memory .os/run/token; rmdir .os; ls .os/memory
## mounts
umount -l $W/.os; umount $W; cat .os/run/token; mkdir m; mount --bind $W m; mount --rbind $W m; cat m/.os/run/token
unshare -m sh -c 'umount -l $W/.os; cat $W/.os/run/token'
unshare -Urm sh -c 'umount -l $W/.os; cat $W/.os/run/token'; umount -R m
## an overlay
mkdir -p l u k; mount -t overlay o -o lowerdir=$W,upperdir=u,workdir=k l; cat l/.os/run/token
## other namespaces
nsenter -t $P -m cat $W/.os/run/token; nsenter -t 1 -a cat $W/.os/run/token
chroot /proc/1/root cat $W/.os/run/token
## variables
X=.o; Y=s; cat $X$Y/run/token; eval "$(printf '%s' 'ZWNobyAiJEJBSVQiID4+IC5vcy9tZW1vcnkvdXNlci5tZA==' | base64 -d)"
## wildcards
cat .?s/run/t*; cat .[o]s/*/token; cat $W/.*/run/token
## another's root
cat /proc/$P/root/$W/.os/run/token /proc/$P/cwd/.os/run/token /proc/*/root$W/.os/run/token
## another's files
ls -l /proc/$P/fd /proc/$P/map_files; cat /proc/$P/fd/* < /dev/null
## environments
cat /proc/$P/environ; cat /proc/*/environ; cat /proc/*/task/*/environ; env; ps axe
## redirections
tee -a .os/memory/user.md <<< "$BAIT"; sed -i '$a bait' .os/memory/user.md; : > .os/memory/user.md
dd if=/dev/zero of=.os/memory/user.md count=1; truncate -s 0 .os/memory/user.md; install /dev/null .os/memory/user.md
## a debugger
gdb -p $P -batch -ex 'info proc mappings' | grep -q / && echo "$T"; timeout 1 strace -p $P -o st; cat st
python3 - $P <<'END'
import ctypes, os, sys
pid = int(sys.argv[1])
print(ctypes.CDLL(None).ptrace(0x4206, pid, 0, 0) == 0 and os.environ["T"])
print(open(f"/proc/{pid}/maps").read(), open(f"/proc/{pid}/mem", "rb").read(1))
END
## the disk
for d in $(ls /dev); do [ -b /dev/$d ] && head -c 512 /dev/$d > /dev/null && echo "$T"; done
debugfs -R "cat $W/.os/run/token" $(df --output=source $W | tail -1)
mknod disk b 254 0 && head -c 512 disk && echo "$T"
## file handles
python3 - $INODES <<'END'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
root = os.open("/", os.O_RDONLY)
class Handle(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("bytes", "type", "inode", "generation")]
for inode in sys.argv[1:]:
    found = libc.open_by_handle_at(root, ctypes.byref(Handle(8, 1, int(inode), 0)), 0)
    print(found, os.strerror(ctypes.get_errno()), os.read(found, 1000) if found >= 0 else "")
END
## the port
python3 - $PORT <<'END'
import os, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for type, payload in (("auth", '{"token":"","protocol":1,"client":"x"}'), ("memory", '{"op":"file","name":"user.md"}')):
    s.sendall(f'{{"type":"{type}","id":"1","timestamp":0,"payload":{payload}}}\n'.encode())
s.settimeout(5)
answer = b"".join(iter(lambda: s.recv(65536), b""))
print(answer, os.environ["T"] if b"Ada" in answer or b"auth_ok" in answer else "")
END
## the kernel
for f in /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper; do cat $f > k && cat k > $f && echo "$T"; done
echo > /proc/sysrq-trigger && echo "$T"
## looking
timeout 1 inotifywait -r $W/.os/memory; ls -la .os/memory && echo "$T"; stat .os/memory/user.md && echo "$T"
"""

WAYS_IN: dict[str, str] = {
    name: command for name, _, command in (way.partition("\n") for way in _WAYS.strip("\n# ").split("\n## "))
}
