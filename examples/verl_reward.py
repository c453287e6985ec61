"""magcli's reward in verl: start magcli grade --serve 8000 --workers 4, and give verl these two options:

custom_reward_function.path=verl_reward.py custom_reward_function.name=compute_score

The server is at MAGCLI_URL, by default http://127.0.0.1:8000; a token of MAGCLI_TOKEN is sent.
"""

import json
import os
import urllib.request

URL = os.environ.get("MAGCLI_URL", "http://127.0.0.1:8000")
SECONDS = 180


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """The score of a completion, and what verl logs beside it."""
    question = (extra_info or {}).get("question", "")
    body = {"solution_str": solution_str, "ground_truth": ground_truth, "extra_info": {"question": question}}
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("MAGCLI_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(URL, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return json.load(response)
