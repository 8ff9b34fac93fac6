# Posts what the action `gpuplan` estimated as a comment, or updates its comment for the same script and arguments.
#
# The texts were written beside the pull request's code: they are read as a stream and posted, and where to, only the
# event says. Needs curl, jq and unzip, which GitHub's runners have.
set -euo pipefail
shopt -s inherit_errexit

LONGEST_BYTES=60000 # GitHub takes 65,536 characters
cd "$(mktemp -d)"
repository=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY

ask() { # curl with the token, which is on no command line
  curl --silent --show-error --max-time 30 --config <(printf 'header = "Authorization: Bearer %s"\n' "$TOKEN") \
    --header "Accept: application/vnd.github+json" --header "X-GitHub-Api-Version: 2022-11-28" "$@"
}

read_event() {
  jq --raw-output "$1 // empty" "$GITHUB_EVENT_PATH"
}

fail() {
  echo "::error::$1"
  exit 1
}

find_comments() { # numbers of a bot's comments that begin with the marker
  local page=1 found
  found=$(ask --fail "$1?per_page=100")
  while [ "$(jq length <<< "$found")" -gt 0 ]; do
    jq --arg marker "$marker" '.[] | select(.user.type == "Bot" and (.body | startswith($marker))) | .id' <<< "$found"
    page=$((page + 1))
    found=$(ask --fail "$1?per_page=100&page=$page")
  done
}

case $GITHUB_EVENT_NAME in
  pull_request)
    run=$GITHUB_RUN_ID
    number=$(read_event .pull_request.number)
    ;;
  workflow_run) # names no pull request of a fork
    [ "$(read_event .workflow_run.event)" = pull_request ] || fail "the workflow did not run on \`pull_request\`"
    run=$(read_event .workflow_run.id)
    head=$(read_event '.workflow_run | "\(.head_repository.owner.login):\(.head_branch)"')
    sha=$(read_event .workflow_run.head_sha)
    number=$(ask --fail --get --data-urlencode "head=$head" --data state=open "$repository/pulls" \
      | jq --arg sha "$sha" 'map(select(.head.sha == $sha))[0].number // empty')
    [ "$number" ] || { echo "::notice::the pull request is closed, or has newer commits" && exit 0; }
    ;;
  *) fail "gpuplan comments on \`pull_request\` and \`workflow_run\` only" ;;
esac

ask --fail "$repository/actions/runs/$run/artifacts?per_page=100" \
  | jq '.artifacts[] | select(.name | startswith("gpuplan-comment-")) | .id' > artifacts
for artifact in $(< artifacts); do
  ask --fail --location --max-filesize 1000000 --output text.zip "$repository/actions/artifacts/$artifact/zip"
  { unzip -p text.zip gpuplan-comment.md | head -c "$LONGEST_BYTES" > text.md; } || true
  IFS= read -r marker < text.md || true
  [[ $marker =~ ^"<!-- gpuplan "[0-9a-f]{16}" -->"$ ]] || fail "artifact $artifact is no comment of gpuplan"
  comments=$repository/issues/$number/comments
  earlier=$(find_comments "$comments")
  [ "$earlier" ] && request=(PATCH "$repository/issues/comments/${earlier%%$'\n'*}") || request=(POST "$comments")
  status=$(jq --null-input --rawfile body text.md '{$body}' \
    | ask --output answer.json --write-out '%{http_code}' --data @- --request "${request[@]}")
  case $status in
    2*) ;;
    403 | 404) echo "::warning::the token may not comment (a fork's may not): see the summary of the other job" ;;
    *) fail "GitHub answered $status" ;;
  esac
done
