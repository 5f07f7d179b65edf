#!/usr/bin/env bash
# Runs the README's commands on a bare machine: a fresh Debian 12 tree that holds nothing but
# python3-venv and git, and a person without privileges whose home is empty.
#
#   scripts/bare_machine.sh [--with PACKAGE]... [--first] [--keep FOLDER]
#
#   --with g++      installs a further Debian package first; may be repeated
#   --first         runs the first command only
#   --keep FOLDER   leaves the tree there, to be looked at
#
# Needs root and debootstrap. The committed state is cloned into the tree. Where packages come
# from is this machine's own business: the Debian mirror is taken from apt (or from
# DEBIAN_MIRROR), pip's settings, certificates and local package folders are handed through.
# Prints what each command printed and how long it took; fails unless each block of the README
# shows what was printed, and unless installing takes 180 s at most besides downloads.
set -euo pipefail

readonly release=bookworm person=reader most_seconds=180
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
arguments=("$@") packages=python3-venv,git first_only=no keep=

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

while [ $# -gt 0 ]; do
  case $1 in
    --with) packages+=,${2:?}; shift 2 ;;
    --first) first_only=yes; shift ;;
    --keep) keep=${2:?}; shift 2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
[ "$(id -u)" = 0 ] || { echo "bare_machine.sh: needs root, for chroot" >&2; exit 2; }

# Mounts live in a namespace of their own and vanish with this process, however it ends.
if [ -z "${BARE_MACHINE_TREE:-}" ]; then
  tree=${keep:-$(mktemp -d)}
  mkdir -p "$tree" && chmod 755 "$tree"
  status=0
  BARE_MACHINE_TREE=$tree unshare --mount --propagation private "$0" "${arguments[@]}" || status=$?
  [ -n "$keep" ] || rm -rf --one-file-system "$tree"
  exit "$status"
fi
readonly tree=$BARE_MACHINE_TREE

say() { printf '\n== %s\n' "$*"; }

make_tree() {
  local mirror=${DEBIAN_MIRROR:-}
  # shellcheck disable=SC2016  # a placeholder of apt
  [ -n "$mirror" ] ||
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $release" | head -n 1)
  [ -n "$mirror" ] || { echo "apt knows no $release; set DEBIAN_MIRROR" >&2; exit 2; }
  say "a fresh Debian tree ($release, minbase) with ${packages//,/ }"
  debootstrap --variant=minbase --include="$packages" "$release" "$tree" "$mirror" \
    > "$tree.log" 2>&1 || { tail -n 20 "$tree.log" >&2; exit 1; }
  rm -f "$tree.log"
  chroot "$tree" useradd --create-home --skel /nonexistent --shell /bin/bash "$person"
  mount -t proc proc "$tree/proc"
  mount --rbind /dev "$tree/dev"
  cp /etc/resolv.conf /etc/hosts "$tree/etc/"
}

# Shows a file or folder of this machine inside the tree, read-only; of two files, this one.
declare -A shown=()
show() {
  [ -z "${shown[$1]:-}" ] || return 0
  shown[$1]=yes
  if [ -d "$1" ] && [ ! -e "$tree$1" ]; then
    mkdir -p "$tree$1"
  elif [ -f "$1" ]; then
    mkdir -p "$(dirname "$tree$1")"
    touch "$tree$1"
  else
    return 0
  fi
  mount --bind "$1" "$tree$1"
  mount -o remount,bind,ro "$tree$1"
}

# Pip's settings as environment variables, and the files and folders that they name.
hand_settings_through() {
  local line key value word
  # PIP_QUIET: what pip thinks of this machine's settings is not what the README shows.
  environment=("HOME=/home/$person" "USER=$person" PATH=/usr/bin:/bin LANG=C.UTF-8 TERM=dumb PIP_QUIET=1)
  while IFS= read -r line; do
    key=${line%%=*} value=${line#*=} value=${value#\'} value=${value%\'}
    key=${key##*.} key=${key//-/_}
    environment+=("PIP_${key^^}=$value")
    for word in $value; do
      case $word in
        file:///*) show "$(dirname "${word#file://}")" ;; # an index's files lie beside it
        /*) show "$word" ;;
      esac
    done
  done < <("$python" -m pip config list | grep -E '^(global|install|:env:)\.' || true)
  for key in SSL_CERT_FILE REQUESTS_CA_BUNDLE {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY; do
    [ -n "${!key:-}" ] || continue
    environment+=("$key=${!key}")
    case ${!key} in /*) show "${!key}" ;; esac
  done
}

as_person() {
  chroot --userspec="$person:$person" "$tree" /usr/bin/env -i "${environment[@]}" \
    bash -c "cd && cd forwardpass && $1" < /dev/null
}

seconds() { date +%s.%N; }
took() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", b - a }'; }

make_tree
hand_settings_through
git clone --quiet --no-hardlinks "$root" "$tree/home/$person/forwardpass"
chroot "$tree" chown -R "$person:$person" "/home/$person"
[ -z "$(git -C "$root" status --porcelain)" ] || echo "note: uncommitted changes are left out"

mapfile -d '' commands < <(python3 "$root/tests/blocks.py" commands "$root/README.md")
[ ${#commands[@]} = 2 ] || { echo "README.md marks ${#commands[@]} commands, not 2" >&2; exit 1; }
[ "$first_only" = no ] || commands=("${commands[0]}")

number=0 failed=0
for command in "${commands[@]}"; do
  number=$((number + 1))
  output=$tree/home/output.$number
  say "README, command $number"
  printf '$ %s\n' "$command"
  start=$(seconds)
  as_person "$command" > "$output" 2>&1 || { echo "exit status $?"; failed=1; }
  end=$(seconds)
  cat "$output"
  echo "== took $(took "$start" "$end") s with downloads"
  python3 "$root/tests/blocks.py" check "$root/README.md" "$number" "$output" || failed=1
done

# The same installation again, into a fresh folder: what it downloads is in pip's cache by now.
install=${commands[0]%% && *forwardpass run*}
say "installing again, without downloads"
start=$(seconds)
as_person "rm -rf .venv && $install" || failed=1
end=$(seconds)
echo "== installing took $(took "$start" "$end") s besides downloads (at most $most_seconds)"
awk -v a="$start" -v b="$end" -v most="$most_seconds" 'BEGIN { exit b - a > most }' || failed=1

if [ "$failed" = 0 ]; then say "the README's commands work on this bare machine"; else say FAILED; fi
exit "$failed"
