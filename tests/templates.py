"""Chat templates in eight styles of published models, in words of our own, and the special tokens that they write."""

GENERATE = "{% if add_generation_prompt %}"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    + GENERATE + "{{ '<|im_start|>assistant\n' }}{% endif %}"
)  # fmt: skip
LLAMA = (
    "{{ '<|begin|>' }}{% for m in messages %}{{ '<|head|>' + m.role + '<|/head|>\n\n' + m.content | trim + '<|eot|>' }}"
    "{% endfor %}" + GENERATE + "{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
)
MISTRAL = (
    "{% set rest = messages %}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% endif %}{{ '<s>' }}{% for m in rest %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}"
    "{{ '[INST] ' + (first if first is defined and loop.last else '') + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ '<bos>' }}"
    "{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<turn>' + role + '\n' + m.content | trim + '</turn>\n' }}{% endfor %}"
    + GENERATE + "{{ '<turn>model\n' }}{% endif %}"
)  # fmt: skip
PHI = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|stop|>\n' }}{% endfor %}"
    + GENERATE + "{{ '<|assistant|>\n' }}{% else %}{{ '</s>' }}{% endif %}"
)  # fmt: skip
QWEN = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endfor %}"
    "{% set ns.users = -1 %}{% for m in messages %}{% if m.role == 'assistant' %}{% set answer = m.content %}"
    "{% set thought = m.reasoning_content or '' %}{% if '</think>' in answer %}"
    "{% set thought = answer.split('</think>')[0].replace('<think>', '') %}"
    "{% set answer = answer.split('</think>')[1].strip() %}{% endif %}{{ '<|im_start|>assistant\n' }}"
    "{% if ns.users == ns.last %}{{ '<think>\n' + thought.strip() + '\n</think>\n\n' }}{% endif %}"
    "{{ answer + '<|im_end|>\n' }}{% else %}{% if m.role == 'user' %}{% set ns.users = ns.users + 1 %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    + GENERATE + "{{ '<|im_start|>assistant\n' }}{% endif %}"
)  # fmt: skip
R1 = (
    "{{ '<bos>' }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|A|>' + m.content.split('</think>')[-1] + '<|eot|>' }}"
    "{% else %}{{ ('<|U|>' if m.role == 'user' else '') + m.content }}{% endif %}{% endfor %}"
    + GENERATE + "{{ '<|A|><think>\n' }}{% endif %}"
)  # fmt: skip
GLM = (
    "{{ '[g]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n' }}{% if m.role == 'assistant' %}"
    "{% if '</think>' in m.content %}{{ '<think>' + m.content.split('</think>')[0].split('<think>')[-1].strip() "
    "+ '</think>\n' + m.content.split('</think>')[-1].strip() }}"
    "{% else %}{{ '<think></think>\n' + m.content.strip() }}{% endif %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    + GENERATE + "{{ '<|assistant|>' }}{% endif %}"
)  # fmt: skip
STYLES = {
    "chatml": (CHATML, "<|im_end|>"),
    "llama": (LLAMA, "<|eot|>"),
    "mistral": (MISTRAL, "</s>"),
    "gemma": (GEMMA, "</turn>"),
    "phi": (PHI, "<|stop|>"),
    "qwen": (QWEN, "<|im_end|>"),
    "r1": (R1, "<|eot|>"),
    "glm": (GLM, "</s>"),
}
SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|begin|>", "<|head|>", "<|/head|>", "<|eot|>", "<s>", "</s>", "[INST]", "[/INST]",
    "<bos>", "<turn>", "</turn>", "<|stop|>", "<|A|>", "<|U|>", "[g]", "<sop>",
)  # fmt: skip
