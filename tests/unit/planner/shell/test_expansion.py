"""Words of a launch after expansion, beside what bash itself makes of them."""

import shutil
import subprocess
from collections.abc import Mapping

import pytest

from trainplan.planner.shell import Launch, Place, launches_of_script

SCRIPTS = {
    "variables and quotes": """
TP=8; PP="2"; NAME='a b'
python x.py --tp $TP --pp "${PP}" --name "$NAME" --plain $NAME
python x.py --lit '$TP' --esc \\$TP "a\\"b" $'t\\tb'
""",
    "an option string splits, a quoted one does not": """
OPTIONS=" \\
    --tp 8 \\
    --pp 4 "
OPTIONS="$OPTIONS --cp 2"
OPTIONS+=" --sp"
python x.py $OPTIONS --quoted "$OPTIONS"
""",
    "arrays": """
ARGS=(
    --tp 8   # a comment
    --schedule "0:16 2.4B:320"
)
ARGS+=(--sp "")
EMPTY=()
python x.py "${ARGS[@]}" "${EMPTY[@]}" ${#ARGS[@]} ${ARGS[1]} "${ARGS[*]}" ${ARGS[@]}
""",
    "an array by key": """
declare -A LAYERS=([7B]=32 [70B]="80")
SIZE=70B
python x.py --layers ${LAYERS[$SIZE]}
""",
    "defaults": """
SET=1; EMPTY=
python x.py ${UNSET:-8} ${UNSET-"a b"} ${SET:-9} ${EMPTY:-7} ${EMPTY-6} ${SET:+x} ${UNSET:+y}
: ${LATER:=3}
python x.py $LATER ${A:-${B:-$SET}} "${UNSET:-'a}'}"
""",
    "whole numbers": """
N=4; G=8
WORLD=$((N * G))
python x.py $WORLD $(( (WORLD + 1) / 2 )) $((-7/2)) $((2**5)) $(($N%3)) $((N>3&&G<4))
((N = N * 2)); python x.py $N
""",
    "branches that are known": """
SIZE=70B; NODES=2; NAME=
if [[ $SIZE == 7B ]]; then L=32; elif [[ "$SIZE" == 70* ]]; then L=80; else L=1; fi
if [ $NODES -gt 1 ] && [ -z "$NAME" ]; then D=multi; else D=single; fi
case $SIZE in 7B|8B) H=4096 ;; 70B) H=8192 ;; *) H=0 ;; esac
[ -n "$NAME" ] && L=2
[ -n "$NAME" ] || E=3
if (( NODES > 1 )); then F=1; fi
if [[ " a b " == *" b "* && ! $NODES == 1 ]]; then G=1; fi
python x.py $L $D $H $E $F $G
""",
    "functions, eval and texts of their own": """
launch() { local tp=$1; shift; python x.py --tp $tp "$@"; }
launch 8 --pp "4 5"
CMD="python x.py --name 'a b' \\
   --pp 2"
eval $CMD
bash -c "python x.py --from text"
bash -c 'python x.py $1' zero one
""",
    "comments, documents and redirections": """
cat <<EOF > /dev/null
python not.py $(touch canary)
EOF
cat <<-'END' >/dev/null
\tpython not.py
\tEND
python x.py --a 1 2>&1 </dev/null # python not.py
python x.py --b#1 2>/dev/null |& cat
""",
    "a subshell keeps its variables": """
TP=1
( TP=2; python x.py $TP )
python x.py $TP
""",
    "loops of known length": """
for tp in 2; do python x.py --tp $tp; done
for a in --x 1 "b c" {2..4} p{a,b}; do ARGS+=("$a"); done
SUM=
for i in $(seq 3) $(seq 2 2 6); do SUM="$SUM $i"; done
for ((i = 0; i < 3; ++i)); do LIST+=(--i $i); done
n=0; while [ $n -lt 3 ]; do N+=($n); n=$((n+1)); done
until (( n == 0 )); do ((n--)); done
for a in 1 2 3 4; do [ $a = 2 ] && continue; if [ $a = 4 ]; then break; fi; B+=($a); done
for a in 1 2; do for b in 3 4; do C+=($a$b); done; done
python x.py "${ARGS[@]}" $SUM "${LIST[@]}" "${N[@]}" $n ${B[@]} ${C[@]}
""",
    "arguments of a script": """
A=
set -- --tp 4 -p 2 --flag rest
while [[ $# -gt 0 ]]; do
  case $1 in
    --tp) TP=$2; shift 2 ;;
    -p) PP="$2"; shift; shift ;;
    --flag) FLAG=yes; shift ;;
    *) REST+=("$1"); shift ;;
  esac
done
set -- -t 8 -v -c2
while getopts "t:vc:" name; do case $name in t) T=$OPTARG ;; v) V=1 ;; c) C=$OPTARG ;; esac; done
f() { [ -n "$1" ] || return; A="$A $1"; if [ "$1" = x ]; then return; fi; A="$A never"; }
f x; f
python x.py $TP $PP $FLAG "${REST[@]}" $T $V $C $A
""",
    "the run without arguments": """
TP=2; SIZE=${1:-7B}; NAME=$2
if [ -n "${1}" ]; then TP=$1; fi
[ $# -ge 1 ] && TP=9
if [ -z "$NAME" ]; then NAME=plain; fi
case $3 in fp8) F=--fp8 ;; *) F=--bf16 ;; esac
if [ $KIND = dsw ]; then TP=7; fi
python x.py $TP $SIZE ${NAME:-x} $F "$@"
""",
    "read and mapfile": """
read -r TP PP <<< "2 4"
IFS=, read -r A B <<< "1,2 3"
read -ra LIST <<< "x y z"
mapfile -t LINES <<< "one"
read -r -d '' ALL <<'EOF' || true
--a 1
EOF
python x.py $TP $PP "$A" "$B" "${LIST[@]}" "${LINES[0]}" $ALL
""",
    "scripts that a script writes": """
TP=4; export PP=2; HIDDEN=1
cat > made.sh <<EOF
python x.py --tp $TP --pp \\$PP \\$1 "a \\"b" ${HIDDEN}
EOF
bash made.sh 7 "8 9"
cat <<'EOF' | tee other.sh > /dev/null
python x.py $PP ${HIDDEN:-gone} "$0"
EOF
X=1 bash ./other.sh
echo "python x.py $TP" > third.sh
echo 'python x.py more' >> third.sh
. ./third.sh
bash -s <<'EOF'
python x.py $PP; exit 0; python x.py never
EOF
bash <<< "python x.py from text"
python x.py $PP
""",
    "names of files": """
DIR="$( cd -- "$( dirname -- "a/b/run.sh" )" &> /dev/null; echo x )"
python x.py $(dirname a/b.sh) "$(basename a/b.sh .sh)" $(dirname b) $(expr 3 \\* 4) `echo a b`
python x.py $(echo "a(b),c" | cut -d"(" -f1) $(echo a b | wc -w) "$(echo a,b c | cut -d, -f 2)"
mkdir -p q; cd q; R=$(cd .. && echo up); cd ..; python x.py "$R"
""",
    "texts of substitutions": """
TP=4
ARGS="$(cat <<EOF
--tp $TP
  --pp 2
EOF
)"
echo "--cp 2" > more.txt
python x.py $ARGS $(cat more.txt) $(< more.txt)
cat > .env <<EOF
EP=2
VP=3
EOF
export $(cat .env | xargs)
python x.py $EP $VP
""",
    "parts of values": """
A=--tp=8; P=a/b.c/run-7B.sh; N="x y x"
python x.py ${A#*=} ${A%%=*} ${P##*/} ${P#*/} ${P%.*} ${P%/*} ${P##*-} "${N/x/z}" "${N//x/z}"
python x.py ${N^^} ${A//=/ } ${P%%[0-9]*} "${N//y}" ${A##nothing}
declare -A C=([tp]=2 [pp]=4); R=A
for k in "${!C[@]}"; do D+=(--$k ${C[$k]}); done
python x.py ${#D[@]} ${!R}
""",
    "loops over nothing": """
TP=4
while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2 ;; esac; done
for arg in "$@"; do TP=9; done
python x.py --tp $TP
""",
}


def words(launch: Launch) -> list[str]:
    return [launch.program.text, *(word.text for word in launch.arguments)]


def read(text: str, settings: Mapping[str, str] | None = None) -> list[Launch]:
    return list(launches_of_script(text, "run.sh", settings or {}))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the judge")
@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name, tmp_path):
    judge = "python() { printf '%s\\0' \"$@\"; printf '\\1'; }\nexport -f python\n"
    run = subprocess.run(
        ["bash", "-c", judge + SCRIPTS[name], "run.sh"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    expected = [line.split("\0")[:-1] for line in run.stdout.split("\1")[:-1]]
    assert expected, run.stderr
    assert [words(launch) for launch in read(SCRIPTS[name])] == expected


def test_a_word_stands_where_its_text_was_written():
    (launch,) = read('TP=8\nOPTIONS=" \\\n --tp $TP \\\n --pp 4"\npython x.py $OPTIONS')
    places = [(word.text, word.place) for word in launch.arguments]
    assert places == [
        ("--tp", Place("run.sh", 3)),
        ("8", Place("run.sh", 1)),
        ("--pp", Place("run.sh", 4)),
        ("4", Place("run.sh", 4)),
    ]


def test_what_only_a_run_would_tell_stays_as_written():
    (launch,) = read('python x.py --a $(hostname) --b `id` --c $FREE --d <(ls) --e $1/x "$@"')
    assert words(launch)[-1] == "$1/x"
    unresolved = {word.text: word.unresolved for word in launch.arguments if word.unresolved}
    assert unresolved == {
        "$(hostname)": ("$(hostname)",),
        "`id`": ("`id`",),
        "$FREE": ("FREE",),
        "<(ls)": ("<(ls)",),
        "$1/x": ("1",),
    }


def test_settings_stand_for_what_only_a_run_would_tell():
    text = "TP=$(cat tp)\nPP=2\npython x.py --tp $TP --pp $PP --cp ${CP:-1} $1"
    (launch,) = read(text)
    assert launch.arguments[1].unresolved == ("TP",)
    (problem,) = launch.problems
    assert (problem.cause, problem.place) == ("shell_unread", Place("run.sh", 1))
    assert "--set TP=VALUE" in problem.says
    (launch,) = read(text, {"TP": "8", "PP": "9", "CP": "4", "1": "--sp"})
    assert words(launch)[1:] == ["--tp", "8", "--pp", "2", "--cp", "4", "--sp"]
    assert launch.problems == ()


def test_an_option_string_with_one_unknown_keeps_the_others():
    (launch,) = read('O="--tp $(f) --pp 4"\npython x.py $O')
    assert [word.unresolved for word in launch.arguments] == [(), ("O",), (), ()]


def test_a_blank_to_fill_is_unresolved():
    (launch,) = read("DATA=<path to data>/x\npython x.py --data $DATA --tp 2")
    assert launch.arguments[1].unresolved == ("DATA",)
    assert words(launch)[-1] == "2"
