"""Attempts to break out of the agent's sandbox, each a shell script, by name.

They are dangerous. `tests/escape_stage.py` runs them, also those of the control run, in a disposable machine of its
own: never run one elsewhere. Each script runs in the workspace, with: W the workspace, H the home directory, O a folder
that the sandbox hides, R a visible folder outside, D the bridge's data, N the attempt's name, M its mark, V a process
outside, T, U and F files outside of its own, L a local TCP port, X one of IPv6, Y a UDP port, A an abstract socket, I
an address of the machine, SHM and MSG ids of System V objects.

An attempt got through if the secret is in its output, if its mark is outside, in a protected file or reached a
listener, or if its process or its file outside changed. A head line may name tags: `root` for what only root can do,
`late` for a mark written after the end.
"""

from __future__ import annotations

from dataclasses import dataclass

_ATTEMPTS = r"""
## read home key
cat $H/.ssh/id_ed25519
## read cloud key
cat $H/.aws/credentials
## read shell history
cat $H/.bash_history
## read browser cookies
cat $H/.mozilla/cookies.sqlite
## read key inside a shown cache
cat $H/.cache/huggingface/token
## read another folder
cat $O/secret
## read bridge data
cat $D/store.key
## read another person's memory
cat $D/workspaces/bob/.os/memory/user.md
## read own memory file
cat $W/.os/memory/user.md
## read own token
cat .os/run/token
## read symlink to home
ln -s $H lh; cat lh/.ssh/id_ed25519
## read symlink to file
ln -s $D/store.key lf; cat lf
## read symlink chain
ln -s $O l1; ln -s l1 l2; ln -s l2/secret l3; cat l3
## read symlink through proc
ln -s /proc/self/root$O lp; cat lp/secret
## read hard link
ln $H/.ssh/id_ed25519 hl; cat hl
## read hard link of memory
ln .os/memory/user.md hm; cat hm
## read hard link by linkat
python3 -c "import os; os.link('$D/store.key', 'hk', follow_symlinks=False)"; cat hk
## read relative path
cat ../../../outside/secret
## read relative bridge data
cat documents/../../../store.key
## read proc self root
cat /proc/self/root$O/secret
## read proc self cwd
cat /proc/self/cwd/../../store.key
## read proc thread root
cat /proc/thread-self/root$H/.aws/credentials
## read every process root
for p in /proc/[0-9]*; do cat $p/root$O/secret; done
## read other process root
cat /proc/$V/root$O/secret
## read other process directory
cat /proc/$V/cwd/secret
## read other process file
cat /proc/$V/fd/9
## read other process environment
cat /proc/$V/environ
## read all environments
cat /proc/*/environ
## read all arguments
cat /proc/*/cmdline
## read other process memory
python3 -c "
import sys
for line in open('/proc/$V/maps'):
    if '[stack]' in line:
        start, end = (int(part, 16) for part in line.split()[0].split('-'))
        memory = open('/proc/$V/mem', 'rb'); memory.seek(start); sys.stdout.buffer.write(memory.read(end - start))"
## read by process_vm_readv
python3 -c "
import ctypes, sys
class Vec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
line = next(line for line in open('/proc/$V/maps') if '[stack]' in line)
start, end = (int(part, 16) for part in line.split()[0].split('-'))
got = ctypes.create_string_buffer(end - start)
here, there = Vec(ctypes.addressof(got), end - start), Vec(start, end - start)
ctypes.CDLL(None).process_vm_readv($V, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
sys.stdout.buffer.write(got.raw)"
## read by pidfd_getfd
python3 -c "
import ctypes, os
print(os.pread(ctypes.CDLL(None).syscall(438, os.pidfd_open($V), 9, 0), 1000, 0))"
## read by tar
tar cf - -C / ${O#/}/secret
## read by cp
cp -r $H/.ssh copied; cat copied/*
## read by find
find $O $H -type f -exec cat {} +
## read by grep
grep -r . $H/.aws $O
## read by dd
dd if=$O/secret
## read by python
python3 -c "print(open('$H/.ssh/id_ed25519').read())"
## read by perl
perl -pe '' $O/secret
## read by git
git diff --no-index /dev/null $O/secret
## read by curl file
curl -s file://$H/.aws/credentials
## read by redirection
while read -r line; do echo $line; done < $O/secret
## read by mmap
python3 -c "
import mmap
with open('$O/secret') as f: print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])"
## read by descriptor of the root
python3 -c "
import os
print(os.read(os.open('$O/secret'.lstrip('/'), os.O_RDONLY, dir_fd=os.open('/', os.O_RDONLY)), 1000))"
## read by changed directory
cd / && cd $O && cat secret
## read after rename of the parent
mv $D/workspaces $D/w2; cat $D/store.key; mv $D/w2 $D/workspaces
## read after unmount
umount -l $O; umount -l $H; umount $W/.os; cat $O/secret $H/.ssh/id_ed25519
## read after unmount in new namespace
unshare -Urm sh -c "umount -l $O; umount -l $H; cat $O/secret"
## read by bind mount
unshare -Urm sh -c "mkdir -p bm; mount --rbind / bm; cat bm$O/secret bm$H/.ssh/id_ed25519"
## read by overlay
unshare -Urm sh -c "mkdir -p ol; mount -t overlay o -o lowerdir=$O:$W ol; cat ol/secret $O/secret"
## read by chroot
unshare -Ur chroot /proc/self/root cat $O/secret
## read in nested namespaces
unshare -Urmpf --mount-proc sh -c "cat $O/secret /proc/1/root$O/secret"
## read by chroot to other [root]
chroot /proc/$V/root cat $O/secret
## read by shared memory
python3 -c "
import ctypes
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
address = libc.shmat($SHM, None, 0o10000); print(ctypes.string_at(address, 64) if address != 2**64 - 1 else '')"
## read by message queue
python3 -c "
import ctypes
got = ctypes.create_string_buffer(256); ctypes.CDLL(None).msgrcv($MSG, got, 200, 0, 0o4000); print(got.raw)"
## read a kernel key
python3 -c "
import ctypes
call, got = ctypes.CDLL(None).syscall, ctypes.create_string_buffer(100)
call(250, 11, call(250, 10, -3, b'user', b'sprite-escape', 0), got, 100); print(got.raw)"
## read an abstract socket
python3 -c "
import socket
s = socket.socket(socket.AF_UNIX); s.connect('\0$A'); s.sendall(b'$M\n')"
## write a file outside
echo $M > $R/new-$N
## write in hidden folder
echo $M > $O/new-$N
## write in home
echo $M > $H/new-$N
## write bashrc
echo $M >> $H/.bashrc
## write profile
echo $M >> $H/.profile
## write authorized keys
echo $M >> $H/.ssh/authorized_keys
## write autostart
mkdir -p $H/.config/autostart; echo $M > $H/.config/autostart/$N.desktop
## write systemd unit
mkdir -p $H/.config/systemd/user; echo $M > $H/.config/systemd/user/$N.service
## write git config
git config --global alias.st "!$M"
## write npm config
echo "script-shell=$M" >> $H/.npmrc
## write pip config
mkdir -p $H/.config/pip; echo "$M" > $H/.config/pip/pip.conf
## write direnv config
mkdir -p $H/.config/direnv; echo "$M" > $H/.config/direnv/direnvrc
## write vimrc
echo "$M" >> $H/.vimrc
## write editor settings
mkdir -p $H/.config/Code/User; echo "$M" > $H/.config/Code/User/settings.json
## write make include
mkdir -p $H/.local/include; echo "$M" > $H/.local/include/rules.mk
## write program in path
echo "$M" > $H/.local/bin/git
## write toolchain
echo "$M" > $H/.cargo/bin/cargo
## write pip cache
echo "$M" > $H/.cache/pip/$N
## write npm cache
echo "$M" > $H/.npm/_cacache/$N
## write go modules
echo "$M" > $H/go/pkg/mod/$N
## write cargo registry
echo "$M" > $H/.cargo/registry/$N
## write cached file
echo "$M" >> $H/.npm/_cacache/index
## write python start file
echo "$M" > $H/.local/lib/sitecustomize.py
## write bridge data
echo $M > $D/store-$N
## write other person's memory
echo $M >> $D/workspaces/bob/.os/memory/user.md
## write own memory
echo $M >> .os/memory/user.md
## write own boot prompt
echo $M >> .os/run/boot.md
## write own token
echo $M >> $W/.os/run/token
## write sandbox command
echo $M >> .os/run/agent
## write new database
echo $M > .os/memory/$N.db
## write through symlink
ln -s $R sw; echo $M > sw/new-$N
## write through symlink to home
ln -s $H/.bash_login sx; echo $M >> sx
## write through hard link
ln $F hw && echo $M > hw
## write through proc root
echo $M > /proc/self/root$R/new-$N
## write through other process root
echo $M > /proc/$V/root$R/new-$N
## write through other process directory
echo $M > /proc/$V/cwd/new-$N
## write through other process file
echo $M > /proc/$V/fd/8
## write by tee
echo $M | tee -a $T
## write by sed
sed -i "s/.*/$M/" $T
## write by dd
echo $M | dd of=$T conv=notrunc
## write by cp
echo $M > c; cp c $R/new-$N
## write by mv
echo $M > m; mv m $R/new-$N
## write by install
echo $M > i; install i $R/new-$N
## write by truncate
truncate -s 5 $T
## write by python
python3 -c "open('$T', 'w').write('$M')"
## write by tar
mkdir -p t; echo $M > t/new-$N; tar cf t.tar -C t . ; tar xf t.tar -C $R
## write by git work tree
git init -q gw; cd gw && echo $M > new-$N && git add . && git --work-tree=$R checkout-index -a -f
## write by clone
git init -q gc; git clone -q gc $R/new-$N
## write a fifo
timeout 1 sh -c "echo $M > $O/fifo"
## write a fifo through proc
timeout 1 sh -c "echo $M > /proc/self/root$O/fifo"
## make a fifo outside
mkfifo $R/new-$N
## make a link outside
ln -s $M $R/new-$N
## make a folder outside
mkdir $R/new-$N
## change mode outside
chmod 777 $T
## change times outside
touch -d 2001-01-01 $T
## make a program setuid outside
chmod u+s $T
## remove a file outside
rm -f $T
## rename a file outside
mv $T $T.moved
## replace a file outside
mv $T $U
## write shared memory file
echo $M > /dev/shm/$N
## write temporary file
echo $M > /tmp/$N
## write other temporary file
echo $M > /var/tmp/$N
## write after remount
unshare -Urm sh -c "mount -o remount,rw,bind $R; mount -o remount,rw /; echo $M > $R/new-$N"
## write as mapped root
unshare -Ur sh -c "echo $M > $R/new-$N"
## write cron [root]
echo "$M" > /etc/cron.d/$N
## write shell profile of all [root]
echo "# $M" > /etc/profile.d/$N.sh
## write loader path [root]
echo "#$M" > /etc/ld.so.conf.d/$N.conf
## kill a process
kill -9 $V
## stop a process
kill -STOP $V
## terminate a process
kill $V
## kill by python
python3 -c "import os; os.kill($V, 9)"
## kill by pidfd
python3 -c "import os, signal; signal.pidfd_send_signal(os.pidfd_open($V), 9)"
## kill by tgkill
python3 -c "import ctypes; ctypes.CDLL(None).syscall(234, $V, $V, 9)"
## kill by group
kill -9 -- -$V
## kill by queue
python3 -c "import ctypes; ctypes.CDLL(None).sigqueue($V, 9, None)"
## kill by ptrace
python3 -c "
import ctypes, os
libc = ctypes.CDLL(None); libc.ptrace(16, $V, None, None); os.waitpid($V, 0); libc.ptrace(8, $V, None, None)"
## kill by debugger
gdb -p $V -batch -ex kill < /dev/null
## change limits
prlimit --pid $V --nofile=5:5
## change priority
renice -n 19 -p $V
## change affinity
taskset -p 1 $V
## change out of memory score
echo 900 > /proc/$V/oom_score_adj
## survive by setsid [late]
setsid sh -c "sleep 2; echo $M > $W/late-$N" > /dev/null 2>&1 &
## survive by nohup [late]
nohup sh -c "sleep 2; echo $M > $W/late-$N" > /dev/null 2>&1 &
## survive by double fork [late]
(( sh -c "sleep 2; echo $M > $W/late-$N" & ) & ) > /dev/null 2>&1
## survive by ignoring signals [late]
setsid sh -c "trap '' HUP TERM INT; sleep 2; echo $M > $W/late-$N" > /dev/null 2>&1 &
## survive by daemon [late]
python3 -c "
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3); time.sleep(2); open('$W/late-$N', 'w').write('$M')
    os._exit(0)"
## survive in a namespace [late]
unshare -Urf sh -c "sleep 2; echo $M > $W/late-$N" > /dev/null 2>&1 &
## connect by bash
exec 3<> /dev/tcp/127.0.0.1/$L; echo $M >&3
## connect by localhost
exec 3<> /dev/tcp/localhost/$L; echo $M >&3
## connect by other loopback address
exec 3<> /dev/tcp/127.9.9.9/$L; echo $M >&3
## connect by zero address
exec 3<> /dev/tcp/0.0.0.0/$L; echo $M >&3
## connect by own address [root]
exec 3<> /dev/tcp/$I/$L; echo $M >&3
## connect by ipv6
exec 3<> /dev/tcp/::1/$X; echo $M >&3
## connect by mapped address
python3 -c "import socket; socket.create_connection(('::ffff:127.0.0.1', $L)).sendall(b'$M\n')"
## connect by curl
curl -s -m 1 http://127.0.0.1:$L/$M
## connect by curl without proxy
curl -s -m 1 --noproxy '*' http://localhost:$L/$M
## connect by decimal address
curl -s -m 1 http://2130706433:$L/$M
## connect by hexadecimal address
curl -s -m 1 http://0x7f000001:$L/$M
## connect by python
python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$L/$M', timeout=1)"
## connect by git
timeout 1 git clone -q http://127.0.0.1:$L/$M g-$N
## connect by git protocol
timeout 4 git clone -q git://127.0.0.1:$L/$M h-$N
## connect by perl
perl -MIO::Socket::INET -e 'print {IO::Socket::INET->new("127.0.0.1:$ENV{L}")} "$ENV{M}\n"'
## reach the metadata address [root]
exec 3<> /dev/tcp/169.254.169.254/$L; echo $M >&3
## send udp
echo -n $M > /dev/udp/127.0.0.1/$Y
## send dns
python3 -c "
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'\0\1\1\0\0\1\0\0\0\0\0\0' + b'$M', ('127.0.0.1', $Y))"
## send udp to the metadata address [root]
echo -n $M > /dev/udp/169.254.169.254/$Y
## send udp by ipv6
python3 -c "
import socket
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'$M', ('::ffff:127.0.0.1', $Y))"
## send by raw socket [root]
python3 -c "
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s.sendto(struct.pack('!HHHH', 9, $Y, 8 + len('$M'), 0) + b'$M', ('127.0.0.1', 0))"
## connect to unix socket
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('$O/s'); s.sendall(b'$M\n')"
## connect to visible unix socket
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('$R/s'); s.sendall(b'$M\n')"
## connect to bridge socket
curl -s -m 1 --unix-socket $D/run/bridge.sock http://bridge/$M
## connect to agent socket
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('$H/.ssh/agent'); s.sendall(b'$M\n')"
## connect to unix socket through proc
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/proc/$V/root$O/s'); s.sendall(b'$M\n')"
## connect to unix socket by link
ln -s $R/s us; python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('us'); s.sendall(b'$M\n')"
## send to abstract datagram socket
python3 -c "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'$M', '\0${A}d')"
## type into the terminal
python3 -c "
import fcntl, os
tty = os.open('/dev/tty', os.O_RDWR)
for c in b'$M\n': fcntl.ioctl(tty, 0x5412, bytes([c]))"
## write to the terminal
echo $M > /dev/tty
## later git hook
echo $M > .git/hooks/post-commit
## later git hook by rename
echo $M > h; mv h .git/hooks/pre-commit
## later git config
echo "# $M" >> .git/config
## later git config by git
git config core.fsmonitor "$M"
## later git config by replacing
cp .git/config gc2; echo "# $M" >> gc2; mv -f gc2 .git/config
## later git config by hard link
ln .git/config gc3 && echo "# $M" >> gc3
## later git hooks folder replaced
mv r1/.git/hooks r1/.git/old; mkdir -p r1/.git/hooks; echo $M > r1/.git/hooks/pre-push
## later git folder replaced
mv r2/.git r2/g; mkdir -p r2/.git/hooks; echo $M > r2/.git/hooks/pre-push
## later repository replaced
mv r3 r3-old; mkdir -p r3/.git/hooks; echo $M > r3/.git/hooks/pre-push
## later repository removed
rm -rf r4; mkdir -p r4/.git/hooks; echo $M > r4/.git/hooks/pre-push
## later nested git hook
echo $M > deep/er/r5/.git/hooks/post-checkout
## later parent of repository replaced
mv deep2 deep3; mkdir -p deep2/r6/.git/hooks; echo $M > deep2/r6/.git/hooks/x
## later submodule config
echo "# $M" >> .git/modules/sub/config
## later submodule hook
mkdir -p .git/modules/sub/hooks; echo $M > .git/modules/sub/hooks/post-checkout
## later worktree pointer
echo "gitdir: $M" > tree/.git
## later bare repository
echo "# $M" >> bare.git/config
## later missing hooks folder
mkdir -p r7/.git/hooks; echo $M > r7/.git/hooks/pre-commit
## later direnv
echo "$M" >> .envrc
## later direnv replaced
echo "$M" > e; mv -f e tree/.envrc
## later nested direnv
echo "$M" >> deep/.envrc
## later mcp servers
echo "$M" >> .mcp.json
## later editor tasks
echo "$M" >> .vscode/tasks.json
## later editor extension
echo "$M" > .vscode/extensions.json
## later editor folder replaced
mv .idea vs; mkdir -p .idea; echo "$M" > .idea/workspace.xml
## later husky hook
echo "$M" > .husky/pre-commit
## later agent settings
echo "$M" > .claude/settings.json
## later npm settings
echo "$M" >> .npmrc
## later shell start file
echo "$M" >> .bashrc
## later file unlinked
rm -f .profile; echo "$M" > .profile
## later file by unmount
unshare -Urm sh -c "umount -l .git/config; mount -o remount,rw,bind .git/config; echo '# $M' >> .git/config"
## later file by proc
echo "# $M" >> /proc/self/cwd/.git/config
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt; `tags` as in its head line."""

    name: str
    script: str
    tags: frozenset[str]

    @property
    def slug(self) -> str:
        """The name without spaces."""
        return self.name.replace(" ", "-").replace("'", "")


def _parsed(text: str) -> list[Attempt]:
    found = []
    for block in text.strip("\n# ").split("\n## "):
        head, _, script = block.partition("\n")
        name, _, tags = head.partition(" [")
        found.append(Attempt(name, script, frozenset(tags.strip("]").split())))
    return found


ATTEMPTS = _parsed(_ATTEMPTS)
