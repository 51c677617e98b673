"""Twenty sentences in each of twelve languages, marked by hand: a bar stands where the next begins.

They have what makes sentences hard to tell apart: abbreviations, initials, numbers, quotations,
brackets, and marks without a space behind them. Where people disagree, such as within quotations,
the marks follow grammar: a sentence that contains a quotation is one.
"""

MARKED = {
    "ar": (
        "وصل د. محمد إلى المستشفى صباحاً. |هل تعرف متى تبدأ العملية؟ |قال لي: انتظر قليلاً. "
        "|بلغت الحرارة 38.5 درجة. |يا له من يوم! |كتب أ. د. سامي المقال في عام 1999. |أين "
        "المفتاح؟|وضعته على الطاولة. |انظر ص. 12 من الكتاب. |سألتني أمي: «هل أكلت؟» ثم خرجت. "
        "|سعر الكيلو 3.75 دينار. |نعم! |لا أريد شيئاً... ربما الماء. |التقى م. خالد بالمدير. "
        "|زرنا مصر (ثم عدنا. لم نتأخر) في الصيف. |أرسل الرسالة إلى info@example.com اليوم. "
        "|كان الجو جميلاً. |ماذا حدث بعد ذلك؟! |لم يجب أحد. |انتهت القصة."
    ),
    "de": (
        "Am 3. Oktober kam Prof. Dr. Müller an. |Das Buch kostet ca. 12,50 Euro. |Wo warst "
        "du? |„Ich komme!“, rief sie. |Ludwig XIV. regierte lange. |Vgl. S. 12 und Abb. 3 im "
        "Anhang. |Er trank z. B. Tee, Saft usw. |Dann ging er heim. |J. S. Bach lebte in "
        "Leipzig. |Die Fa. Huber GmbH liefert bis zum 24. Dezember. |Wirklich?! |Ja. |Die "
        "Sitzung (vgl. Nr. 4. Sie war lang) endete spät. |Es waren 1.000 Gäste da. |Das gilt "
        "u. a. für Kinder. |Sie wohnt in der Str. des Friedens. |Nein... das glaube ich "
        "nicht. |Der 1. Platz ging an Hr. Weber. |Öffne die Tür! |Ende gut, alles gut."
    ),
    "el": (
        "Πού πηγαίνεις; |Πάω στην αγορά. |Ο κ. Παπαδόπουλος ήρθε χθες. |Αγόρασε φρούτα, π.χ. "
        "μήλα. |Κοστίζει 3.50 ευρώ. |Τι ωραία μέρα! |Η κα. Μαρία μένει στην Αθήνα. |Ποιος "
        "είναι; |Είναι ο Γ. Σεφέρης. |Είδα ταινία, διάβασα κ.λπ. και κοιμήθηκα. |Βλ. σελ. 12 "
        "του βιβλίου. |«Έλα!» φώναξε ο πατέρας. |Δεν ξέρω... ίσως αύριο. |Το 1821 άρχισε η "
        "επανάσταση. |Πότε τελειώνει; |Στις 5 μ.μ. τελειώνει. |Ο Δρ. Νίκου λείπει. |Γιατί; "
        "|Είναι άρρωστος (έχει πυρετό. Πονάει) από χθες. |Περαστικά!"
    ),
    "en": (
        "Dr. Smith paid $3.50 for it. |Did he? |Yes, at 5 p.m. on Monday. |J. R. R. Tolkien "
        "wrote it in the U.K. |See p. 5 and Fig. 2. |“Stop!” she cried. |He stopped (see No. "
        "4. It is long) and turned. |The firm, Acme Inc., was sold. |It works with Mr. Jones "
        "vs. Mrs. Brown. |Well... maybe. |The U.S. Senate met. |We met at example.com. |Is "
        "it No. 7? |No. |Version 2.0 is out! |He lives on Elm St. with Lt. Col. Brown. |“I "
        "know. |I was there.” |Bring bread, milk, etc. |The end came quickly."
    ),
    "es": (
        "La Sra. Gómez llegó a las 8.30 h. |¿Dónde estabas? |¡Qué alegría! |El Dr. Ruiz vive "
        "en la Av. Libertad. |Véase la pág. 12 del libro. |«¡Ven!», gritó su padre. |No fue. "
        "|Compró pan, leche, etc. |Luego volvió. |EE. UU. firmó el tratado. |Cuesta 1.500 "
        "pesos. |¿De verdad?! |Sí... creo que sí. |Nació en el s. XX. |J. L. Borges escribió "
        "cuentos. |Llegó (era tarde. Llovía) y se durmió. |Vive en el n.º 4. |Ud. no lo "
        "sabe. |Escriba a info@example.com hoy. |Fin."
    ),
    "fr": (
        "M. Dupont est arrivé à 8 h. 30. |Où étais-tu ? |Quelle joie ! |Mme. Durand habite "
        "av. Foch. |Voir p. 12 et fig. 3. |« Viens ! » cria son père. |Il ne vint pas. |Elle "
        "acheta du pain, du lait, etc. |Puis elle rentra. |J.-P. Martin dirige la société. "
        "|Cela coûte 3.50 euros. |Vraiment ?! |Oui... je crois. |Le Dr. Petit soigne les "
        "enfants. |Louis XIV régna longtemps. |Il entra (il pleuvait. Il avait froid) et "
        "s'assit. |Écris à info@example.com. |L'O.N.U. siège à New York. |Élise dort. |Fin."
    ),
    "hi": (
        "डॉ. शर्मा आज आए। |क्या आप ठीक हैं? |हाँ, मैं ठीक हूँ।|वह घर गया।|कीमत 3.50 रुपये "
        "है। |वाह! |ए. पी. जे. कलाम राष्ट्रपति थे। |श्री वर्मा कल आएँगे। |उसने पूछा, “तुम "
        "कौन हो?” और चला गया। |मैंने कहा कि मैं राम हूँ।|पुस्तक का पृ. 12 देखो। |बारिश हो "
        "रही है... छाता लो। |वह (थका था। बीमार था) सो गया। |कब आओगे? |शाम को। |रु. 500 दो। "
        "|पत्र info@example.com पर भेजो। |सच?! |बिल्कुल। |समाप्त।"
    ),
    "ja": (
        "今日は天気がいいです。|どこへ行きますか？|公園に行きます！|「はい。」と彼は言った。"
        "|「早く来て。もう時間だよ。」と母が呼んだ。|値段は３．５ドルです。|本当？！|うん。"
        "|彼は（雨だった。寒かった。）家に帰った。|Ｊ．スミスさんは先生です。"
        "|次は第２章です． |結果を図３に示す．|すごい！！　"
        "|田中さんは、「もう遅い。」とつぶやいた。|モーニング娘。のファンです。"
        "|東京へ行った…… |そして帰った。|「おはよう。」\n|母が笑った。|終わり。"
    ),
    "my": (
        "မင်္ဂလာပါ။ |နေကောင်းလား။ |ကျွန်တော် ကျောင်းသွားမယ်။|သူ အိမ်မှာ ရှိတယ်။|ဈေးက ၃.၅၀ "
        "ကျပ် ဖြစ်တယ်။ |မိုးရွာနေတယ်၊ ထီးယူပါ။ |ဘယ်သွားမလဲ။|ဈေးကို သွားမယ်။ |သူမက “လာပါ။” "
        "လို့ ပြောတယ်။ |စာအုပ် ဖတ်တယ်။|ထမင်းစားပြီးပြီလား? |စားပြီးပြီ။ |သူ (ပင်ပန်းတယ်။ "
        "နေမကောင်းဘူး) အိပ်သွားတယ်။ |ကောင်းတယ်! |၁၉၄၈ ခုနှစ်မှာ လွတ်လပ်ရေး ရတယ်။ |ဒါက ရေပါ။"
        "|info@example.com ကို စာပို့ပါ။ |ဟုတ်ကဲ့။ |နားလည်တယ်။|ပြီးပါပြီ။"
    ),
    "pl": (
        "Prof. Nowak przyjechał 3. maja. |Gdzie byłeś? |Kupił m.in. chleb i mleko. |Dr "
        "Kowalski mieszka przy ul. Długiej. |Zob. s. 12 i rys. 3. |„Chodź!” zawołał ojciec. "
        "|Nie poszedł. |Kosztuje ok. 3,50 zł. |To było np. w czerwcu. |J. Tuwim pisał "
        "wiersze. |Naprawdę?! |Tak... chyba tak. |Wszedł (padało. Było zimno) i usiadł. |W "
        "XX w. było inaczej. |Jan III Sobieski był królem. |Łódź jest duża. |Firma ma 1.000 "
        "pracowników. |Pisz na info@example.com. |Św. Jan patrzy. |Koniec."
    ),
    "ru": (
        "Это ул. Ленина, д. 5. |Где ты был? |Проф. Иванов приехал в 1999 г. |А. С. Пушкин "
        "родился в Москве. |См. рис. 3 и стр. 12. |«Иди сюда!» — крикнул отец. |Он не пошёл. "
        "|Цена 3.50 руб. за штуку. |Правда?! |Да... наверное. |Он купил хлеб, молоко и т. д. "
        "|Потом вернулся. |Он вошёл (шёл дождь. Было холодно) и сел. |В XX в. всё "
        "изменилось. |Т.е. ничего нового. |Пётр I был царём. |Пишите на info@example.com. "
        "|Ура! |Им. Горького назван парк. |Конец."
    ),
    "zh": (
        "今天天气很好。|你去哪儿？|我们去公园！|“好。”他说。|他问：“你是谁？”然后走了。"
        "|价格是3.5元。|真的吗?! |当然。 |他（下雨了。很冷。）回家了。"
        "|请看http://example.com/a。|谢谢！！|J. Smith先生来了。|等等……我不懂。"
        "|《你好，世界。》是一本书。|第一，要快；第二，要好。|她说：“我知道。我在那儿。”"
        "|没有人说话。|明天见~ |“走吧！”\n|结束了。"
    ),
}


def sentences_of(language: str) -> list[str]:
    """Returns the sentences of a language, with the white space that follows them."""
    return MARKED[language].split("|")
