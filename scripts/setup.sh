# Makes .venv and installs ldsearch with the tested versions, once; the other scripts source this file.
# A stamp of what was installed makes the second run start at once. CONSTRAINTS names other versions.
python=${PYTHON:-python3}
constraints=${CONSTRAINTS:-constraints.txt}
stamp=.venv/installed
wanted=$(cat pyproject.toml "$constraints" | cksum)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
  echo "installing into .venv (a few minutes the first time)"
  .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c "$constraints" -e '.[test]'
  echo "$wanted" > "$stamp"
fi
