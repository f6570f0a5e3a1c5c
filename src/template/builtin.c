/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates for models that carry none, one per prompt format, written from the formats' published descriptions.
 *
 * All know system, user and assistant messages and add_generation_prompt; a format without a system role puts the
 * system text in front of the first user message. Content is text, or a list of parts of which the text is used.
 */
#include "template/template.h"

#include <string.h>

/* text(m): a message's content as text. */
#define TEXT_MACRO                                                                                                     \
    "{%- macro text(m) -%}{%- if m.content is string -%}{{ m.content }}{%- elif m.content -%}"                         \
    "{%- for part in m.content -%}{%- if part.type == 'text' -%}{{ part.text }}{%- endif -%}{%- endfor -%}"            \
    "{%- endif -%}{%- endmacro -%}"

/* ns.system: the text of leading system messages, for formats without that role. */
#define LEADING_SYSTEM                                                                                                 \
    TEXT_MACRO "{%- set ns = namespace(system='', first=true) -%}"                                                     \
               "{%- if messages and messages[0].role in ['system', 'developer'] -%}"                                   \
               "{%- set ns.system = text(messages[0]) -%}{%- set messages = messages[1:] -%}{%- endif -%}"

static const struct {
    const char *name, *source;
} BUILTIN[] = {
    { "chatml", TEXT_MACRO "{%- for m in messages -%}"
                           "{{ '<|im_start|>' + m.role + '\\n' + text(m) + '<|im_end|>\\n' }}"
                           "{%- endfor -%}"
                           "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}" },
    { "llama2", LEADING_SYSTEM "{%- for m in messages -%}"
                               "{%- if m.role == 'user' -%}"
                               "{{ bos_token + '[INST] ' + ('<<SYS>>\\n' + ns.system + '\\n<</SYS>>\\n\\n' if ns.first "
                               "and ns.system else '') + text(m) + ' [/INST]' }}"
                               "{%- set ns.first = false -%}"
                               "{%- else -%}{{ ' ' + text(m) + ' ' + eos_token }}{%- endif -%}"
                               "{%- endfor -%}" },
    { "llama3", TEXT_MACRO
      "{{- bos_token -}}"
      "{%- for m in messages -%}"
      "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + text(m)|trim + '<|eot_id|>' }}"
      "{%- endfor -%}"
      "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}" },
    { "mistral", LEADING_SYSTEM
      "{{- bos_token -}}"
      "{%- for m in messages -%}"
      "{%- if m.role == 'user' -%}"
      "{{ '[INST] ' + (ns.system + '\\n\\n' if loop.first and ns.system else '') + text(m) + ' [/INST]' }}"
      "{%- else -%}{{ ' ' + text(m) + eos_token }}{%- endif -%}"
      "{%- endfor -%}" },
    { "mistral-tekken",
      TEXT_MACRO "{{- bos_token -}}"
                 "{%- for m in messages -%}"
                 "{%- if m.role == 'user' -%}{{ '[INST]' + text(m) + '[/INST]' }}"
                 "{%- elif m.role in ['system', 'developer'] -%}{{ '[SYSTEM_PROMPT]' + text(m) + '[/SYSTEM_PROMPT]' }}"
                 "{%- else -%}{{ text(m) + eos_token }}{%- endif -%}"
                 "{%- endfor -%}" },
    { "gemma",
      LEADING_SYSTEM "{{- bos_token -}}"
                     "{%- for m in messages -%}"
                     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + "
                     "(ns.system + '\\n\\n' if loop.first and ns.system else '') + text(m)|trim + '<end_of_turn>\\n' }}"
                     "{%- endfor -%}"
                     "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}" },
    { "phi3", TEXT_MACRO "{%- for m in messages -%}"
                         "{{ '<|' + m.role + '|>\\n' + text(m) + '<|end|>\\n' }}"
                         "{%- endfor -%}"
                         "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}" },
    { "zephyr", TEXT_MACRO "{%- for m in messages -%}"
                           "{{ '<|' + m.role + '|>\\n' + text(m) + eos_token + '\\n' }}"
                           "{%- endfor -%}"
                           "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}" },
    { "vicuna", LEADING_SYSTEM "{{- bos_token -}}"
                               "{%- if ns.system -%}{{ ns.system + '\\n\\n' }}{%- endif -%}"
                               "{%- for m in messages -%}"
                               "{%- if m.role == 'user' -%}{{ 'USER: ' + text(m) + '\\n' }}"
                               "{%- else -%}{{ 'ASSISTANT: ' + text(m) + eos_token + '\\n' }}{%- endif -%}"
                               "{%- endfor -%}"
                               "{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}" },
    { "alpaca", LEADING_SYSTEM "{{- bos_token -}}"
                               "{%- if ns.system -%}{{ ns.system + '\\n\\n' }}{%- endif -%}"
                               "{%- for m in messages -%}"
                               "{%- if m.role == 'user' -%}{{ '### Instruction:\\n' + text(m) + '\\n\\n' }}"
                               "{%- else -%}{{ '### Response:\\n' + text(m) + eos_token + '\\n\\n' }}{%- endif -%}"
                               "{%- endfor -%}"
                               "{%- if add_generation_prompt -%}{{ '### Response:\\n' }}{%- endif -%}" },
    { "deepseek", LEADING_SYSTEM "{{- bos_token + ns.system -}}"
                                 "{%- for m in messages -%}"
                                 "{%- if m.role == 'user' -%}{{ '<｜User｜>' + text(m) }}"
                                 "{%- else -%}{{ '<｜Assistant｜>' + text(m) + '<｜end▁of▁sentence｜>' }}{%- endif -%}"
                                 "{%- endfor -%}"
                                 "{%- if add_generation_prompt -%}{{ '<｜Assistant｜>' }}{%- endif -%}" },
    { "command-r",
      TEXT_MACRO "{{- bos_token -}}"
                 "{%- set roles = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} -%}"
                 "{%- for m in messages -%}"
                 "{{ '<|START_OF_TURN_TOKEN|><|' + roles.get(m.role, 'USER') + '_TOKEN|>' + text(m)|trim + "
                 "'<|END_OF_TURN_TOKEN|>' }}"
                 "{%- endfor -%}"
                 "{%- if add_generation_prompt -%}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif -%}" },
    { "granite",
      TEXT_MACRO "{%- for m in messages -%}"
                 "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + text(m) + '<|end_of_text|>\\n' }}"
                 "{%- endfor -%}"
                 "{%- if add_generation_prompt -%}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif -%}" },
    { "glm4", TEXT_MACRO "{{- '[gMASK]<sop>' -}}"
                         "{%- for m in messages -%}{{ '<|' + m.role + '|>\\n' + text(m) }}{%- endfor -%}"
                         "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}" },
    { "exaone", TEXT_MACRO "{%- for m in messages -%}"
                           "{{ '[|' + m.role + '|]' + text(m) + ('\\n' if m.role == 'user' else '[|endofturn|]\\n') }}"
                           "{%- endfor -%}"
                           "{%- if add_generation_prompt -%}{{ '[|assistant|]' }}{%- endif -%}" },
    /* No chat: pictures, then a question, of which the answer is all that follows. */
    { "paligemma", TEXT_MACRO
      "{%- set ns = namespace(seen=false) -%}"
      "{%- if messages|length != 1 or messages[0].role != 'user' -%}"
      "{{ raise_exception('PaliGemma answers one question of a user; it knows no conversations') }}{%- endif -%}"
      "{%- if messages[0].content is not string -%}"
      "{%- for part in messages[0].content if part.type == 'image' -%}"
      "{{ '<image>' }}{%- set ns.seen = true -%}{%- endfor -%}{%- endif -%}"
      "{%- if not ns.seen -%}{{ raise_exception('PaliGemma answers questions about a picture: it needs one') }}"
      "{%- endif -%}{{ bos_token + text(messages[0]) + '\\n' }}" },
};

const char *tmpl_builtin(const char *name) {
    for (size_t i = 0; i < sizeof BUILTIN / sizeof *BUILTIN; i++) {
        if (strcmp(BUILTIN[i].name, name) == 0) return BUILTIN[i].source;
    }
    return NULL;
}

const char *tmpl_builtin_name(size_t index) {
    return index < sizeof BUILTIN / sizeof *BUILTIN ? BUILTIN[index].name : NULL;
}
